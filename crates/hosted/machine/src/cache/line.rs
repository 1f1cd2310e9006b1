//! A cache line, and where words are in a frame.

use mayfly_platform::address::{Hpa, PAGE_SIZE};

/// Bytes of a line. Smaller than it may be on some processors, which costs instructions there and misses nothing.
pub const LINE: u64 = 64;

/// The number of the word at `hpa` in its frame.
pub(super) fn word(hpa: Hpa) -> usize {
    (hpa.get() % PAGE_SIZE / 8) as usize
}
