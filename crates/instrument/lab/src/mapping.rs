//! How large the leaves are.

use mayfly_kvm::{Error, GuestMemory, HugePages};
use mayfly_machine::address_space::Backing;
use mayfly_stage2::Level;

/// What a VM's memory is mapped in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mapping {
    /// Pages of 4 KiB.
    Pages,
    /// Blocks of 2 MiB.
    Blocks,
}

impl Mapping {
    pub(crate) const ALL: [Self; 2] = [Self::Pages, Self::Blocks];

    /// The parameter's name in records.
    pub(crate) const PARAM: &'static str = "mapping";

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Pages => "4KiB",
            Self::Blocks => "2MiB",
        }
    }

    /// The level that the leaves are in.
    pub(crate) const fn level(self) -> Level {
        match self {
            Self::Pages => Level::PAGE,
            Self::Blocks => Level::MIB2,
        }
    }

    /// Host memory of which a fault maps as much.
    pub(crate) const fn backing(self) -> Backing {
        match self {
            Self::Pages => Backing::Pages,
            Self::Blocks => Backing::HugePages,
        }
    }

    /// `bytes` bytes of memory for a guest on KVM, which the kernel is asked to back so.
    pub(crate) fn guest_memory(self, bytes: usize) -> Result<GuestMemory, Error> {
        let memory = GuestMemory::map(bytes)?;
        match self {
            Self::Blocks => memory.advise(HugePages::Wanted)?,
            // Where the kernel knows no huge pages, it need not be told.
            Self::Pages => memory.advise(HugePages::Unwanted).unwrap_or_default(),
        }
        Ok(memory)
    }
}
