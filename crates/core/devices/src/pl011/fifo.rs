//! The receive FIFO: bytes with the errors that they came with.

/// How many entries it has in r1p5, where it is enabled.
pub(super) const DEPTH: usize = 32;

/// First in, first out; of one entry where FIFOs are turned off.
#[derive(Clone, Debug)]
pub(super) struct Fifo {
    entries: [u16; DEPTH],
    first: usize,
    len: usize,
}

impl Fifo {
    pub(super) const fn new() -> Self {
        Self { entries: [0; DEPTH], first: 0, len: 0 }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Adds an entry, if there are fewer than `depth`, which is at most [`DEPTH`].
    pub(super) fn push(&mut self, entry: u16, depth: usize) -> bool {
        let room = self.len < depth.min(DEPTH);
        if room {
            self.entries[(self.first + self.len) % DEPTH] = entry;
            self.len += 1;
        }
        room
    }

    /// All entries, from the next on.
    pub(super) fn iter(&self) -> impl Iterator<Item = u16> {
        (0..self.len).map(|place| self.entries[(self.first + place) % DEPTH])
    }

    /// The next entry, which stays.
    pub(super) fn peek(&self) -> Option<u16> {
        (self.len > 0).then(|| self.entries[self.first])
    }

    pub(super) fn pop(&mut self) -> Option<u16> {
        let entry = self.peek()?;
        self.first = (self.first + 1) % DEPTH;
        self.len -= 1;
        Some(entry)
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }
}
