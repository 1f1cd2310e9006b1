//! What a range of addresses has for memory, and where one of them is.

use mayfly_platform::address::{PAGE_SIZE, Pfn};
use mayfly_stage2::Level;

/// What a range of addresses gets for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Pages of 4 KiB, each when it is first resolved.
    Pages,
    /// Pages of 2 MiB, each when it is first resolved.
    HugePages,
    /// Frames one after the other (within each GiB), all of them at once, and all there for good: no page of it is
    /// reclaimed or migrated. They take room where they are touched.
    Contiguous,
    /// The same block of this level everywhere. All there for good as well.
    Shared(Level),
}

impl Backing {
    /// What sizes are rounded up to a multiple of, in bytes.
    pub const fn unit(self) -> u64 {
        let level = match self {
            Self::Pages | Self::Contiguous => Level::PAGE,
            Self::HugePages => Level::MIB2,
            Self::Shared(level) => level,
        };
        level.pages() * PAGE_SIZE
    }
}

/// What may be done with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// It may be read.
    ReadOnly,
    /// It may be read and written.
    ReadWrite,
}

/// Where an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Its page's frame.
    pub pfn: Pfn,
    /// The largest block around it that is one in the host: aligned addresses, aligned frames, one after the other,
    /// with one protection. A page of 4 KiB or 2 MiB, or up to 1 GiB of [`Backing::Contiguous`] and
    /// [`Backing::Shared`].
    pub level: Level,
    /// Whether it may be written.
    pub writable: bool,
}
