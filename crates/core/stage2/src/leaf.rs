//! What a leaf says of the memory that it maps.

use bitflags::bitflags;
use mayfly_platform::address::Pfn;

bitflags! {
    /// What the guest may do with memory.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Permissions: u8 {
        /// Load from it.
        const READ = 1;
        /// Store to it.
        const WRITE = 2;
        /// Fetch instructions from it.
        const EXECUTE = 4;
    }
}

/// How the guest's accesses go to memory, where stage 1 does not ask for less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryType {
    /// Normal memory, write-back cacheable.
    WriteBack,
    /// Normal memory, past the caches.
    Uncached,
    /// A device's registers.
    Device,
}

/// A page or a block, in no particular format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Leaf {
    /// The first frame that it maps; a multiple of its level's pages.
    pub pfn: Pfn,
    /// What the guest may do.
    pub permissions: Permissions,
    /// How it is accessed.
    pub memory: MemoryType,
    /// Whether it has been used since it was last aged. Where hardware does not keep this itself, an access to a leaf
    /// that has it clear faults.
    pub accessed: bool,
    /// Whether it has been written; always clear in a format that does not keep this.
    pub dirty: bool,
    /// A mark that hardware ignores: a vCPU may write to it past the caches, or has, since it was last
    /// [taken](crate::Stage2::take_written). It goes where the entry goes: to the pages of a block that is split, to
    /// the same frame with other rights.
    pub written: bool,
}

impl Leaf {
    /// Write-back memory at `pfn`, used, not written.
    pub const fn new(pfn: Pfn, permissions: Permissions) -> Self {
        let memory = MemoryType::WriteBack;
        Self { pfn, permissions, memory, accessed: true, dirty: false, written: false }
    }
}
