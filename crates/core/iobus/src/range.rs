//! Where a device answers.

use core::fmt;

use crate::Error;

/// The `len` addresses from `start` on. Shown as `0x1000+0x200`.
///
/// Any values can be written down; what a bus accepts is checked when they are used: at least one address, and an end
/// (`start + len`) that a `u64` can hold. So no device covers the very last address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IoRange {
    /// The first address.
    pub start: u64,
    /// The number of addresses.
    pub len: u64,
}

impl IoRange {
    /// The address after the last one.
    pub(crate) fn end(self) -> Result<u64, Error> {
        if self.len == 0 {
            return Err(Error::ZeroLength(self));
        }
        self.start.checked_add(self.len).ok_or(Error::Overflow(self))
    }
}

impl fmt::Display for IoRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}+{:#x}", self.start, self.len)
    }
}
