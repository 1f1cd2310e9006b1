//! The host memory behind a slot, of which a slot knows only where it is.

use core::fmt::Debug;

use crate::Hva;

/// Where the host memory of a slot begins: a host virtual address ([`Hva`]) on a hosted system, a range of frames on
/// bare metal.
pub trait Backing: Copy + Eq + Debug + Send + Sync + 'static {
    /// Where it is, in bytes, on a line that all host memory lies on. Memory is shared by two slots where their ranges
    /// of positions overlap.
    fn position(self) -> u64;

    /// The memory `bytes` further on; `None` if it does not reach so far. Its position is this one's plus `bytes`. The
    /// end, one past the last byte, counts as reached.
    fn checked_add(self, bytes: u64) -> Option<Self>;
}

impl Backing for Hva {
    #[inline]
    fn position(self) -> u64 {
        self.get()
    }

    #[inline]
    fn checked_add(self, bytes: u64) -> Option<Self> {
        Hva::checked_add(self, bytes)
    }
}
