//! Bytes that come one by one are lines, of a bounded length.

/// The most bytes of a line, without its end, and the most backslashes. A line is read without a look for interrupts, and
/// what is escaped takes ten times as long as what is not.
pub const LONGEST: usize = 512;
const MOST_ESCAPES: usize = 32;

/// A line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// These bytes, of which there is one at least.
    Whole(&'a [u8]),
    /// More than [`LONGEST`] bytes, or more backslashes than are taken.
    TooLong,
}

/// What has come of a line.
#[derive(Clone, Debug)]
pub struct Lines {
    bytes: [u8; LONGEST],
    len: usize,
    escapes: usize,
    is_too_long: bool,
    /// The line has been returned.
    is_done: bool,
}

impl Default for Lines {
    fn default() -> Self {
        Self::new()
    }
}

impl Lines {
    /// Before the first byte.
    pub const fn new() -> Self {
        Self { bytes: [0; LONGEST], len: 0, escapes: 0, is_too_long: false, is_done: false }
    }

    /// The next byte. Returns the line that ends with it, unless that is empty.
    pub fn push(&mut self, byte: u8) -> Option<Line<'_>> {
        if self.is_done {
            (self.len, self.escapes, self.is_too_long, self.is_done) = (0, 0, false, false);
        }
        if !matches!(byte, b'\n' | b'\r') {
            self.escapes += usize::from(byte == b'\\');
            self.is_too_long |= self.escapes > MOST_ESCAPES;
            match self.bytes.get_mut(self.len) {
                Some(next) => {
                    *next = byte;
                    self.len += 1;
                }
                None => self.is_too_long = true,
            }
            return None;
        }
        self.is_done = true;
        match self.bytes.get(..self.len) {
            _ if self.is_too_long => Some(Line::TooLong),
            Some(line) if !line.is_empty() => Some(Line::Whole(line)),
            _ => None,
        }
    }
}
