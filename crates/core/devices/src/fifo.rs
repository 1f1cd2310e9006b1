//! What a UART has received, and its driver has not read.

/// First in, first out, of at most `DEPTH` entries.
#[derive(Clone, Debug)]
pub(crate) struct Fifo<T, const DEPTH: usize> {
    entries: [T; DEPTH],
    first: usize,
    len: usize,
}

impl<T: Copy + Default, const DEPTH: usize> Default for Fifo<T, DEPTH> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: Copy, const DEPTH: usize> Fifo<T, DEPTH> {
    /// An empty one, whose places have `nothing` until they are used.
    pub(crate) const fn new(nothing: T) -> Self {
        Self { entries: [nothing; DEPTH], first: 0, len: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Adds an entry, if there are fewer than `depth`, which is at most `DEPTH`.
    pub(crate) fn push(&mut self, entry: T, depth: usize) -> bool {
        let room = self.len < depth.min(DEPTH);
        if room {
            self.entries[(self.first + self.len) % DEPTH] = entry;
            self.len += 1;
        }
        room
    }

    /// All entries, from the next on.
    pub(crate) fn iter(&self) -> impl Iterator<Item = T> {
        (0..self.len).map(|place| self.entries[(self.first + place) % DEPTH])
    }

    /// The next entry, which stays.
    pub(crate) fn peek(&self) -> Option<T> {
        (self.len > 0).then(|| self.entries[self.first])
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        let entry = self.peek()?;
        self.first = (self.first + 1) % DEPTH;
        self.len -= 1;
        Some(entry)
    }

    pub(crate) const fn clear(&mut self) {
        self.len = 0;
    }
}
