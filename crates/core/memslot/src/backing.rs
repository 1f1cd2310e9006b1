//! The host memory behind a slot, of which a slot knows only where it is.

use core::fmt::Debug;

use mayfly_platform::address::{Hpa, PAGE_SHIFT, Pfn};

use crate::Hva;

/// Where the host memory of a slot begins: a host virtual address ([`Hva`]) on a hosted system, a range of frames
/// ([`FrameRange`]) on bare metal.
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

/// Frames of the host that follow each other, behind a slot on bare metal: from a place among them to their end. A
/// region that reaches beyond that is refused.
///
/// It is a number and no more: whether a guest may have the frames is for the code that resolves it to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameRange {
    start: Hpa,
    /// One past the last byte.
    end: Hpa,
}

impl FrameRange {
    /// `count` frames from `first` on; `None` where not all of them, and the end, have an address.
    pub fn new(first: Pfn, count: u64) -> Option<Self> {
        let end = first.checked_add(count)?.hpa()?;
        Some(Self { start: Hpa::new(first.get() << PAGE_SHIFT), end })
    }

    /// Where it is.
    #[inline]
    pub const fn hpa(self) -> Hpa {
        self.start
    }

    /// The bytes from there to the end.
    #[inline]
    pub const fn bytes(self) -> u64 {
        self.end.get() - self.start.get()
    }
}

impl Backing for FrameRange {
    #[inline]
    fn position(self) -> u64 {
        self.start.get()
    }

    #[inline]
    fn checked_add(self, bytes: u64) -> Option<Self> {
        let start = self.start.checked_add(bytes).filter(|start| *start <= self.end)?;
        Some(Self { start, ..self })
    }
}
