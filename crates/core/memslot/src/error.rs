//! Why a region cannot be set.
//!
//! `error.rs` and `region.rs` import each other: an error names its slot, and bits that name no slot are an error.

use mayfly_platform::memory::OutOfMemory;

use crate::region::{MAX_PAGES, SlotId};
use crate::{Flags, Gfn, Gpa};

/// What is wrong with which part of a [`Region`](crate::Region). The slots are as they were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The VM has no such address space.
    #[error("the VM has no address space {space}")]
    NoSuchSpace {
        /// What was asked for.
        space: u16,
    },
    /// The slot's index is not one that this call may set: the user's are below [`USER_SLOTS`](crate::USER_SLOTS), and
    /// the [`PRIVATE_SLOTS`](crate::PRIVATE_SLOTS) after them are reached by the calls for private slots only.
    #[error("{slot} is not one that this call may set")]
    SlotOutOfRange {
        /// What was asked for.
        slot: SlotId,
    },
    /// Bits are set that stand for no flag.
    #[error("flags {:#x} stand for no property of a slot", flags.bits())]
    UnknownFlags {
        /// The bits in question.
        flags: Flags,
    },
    /// A private slot with flags; they mean something to a user only.
    #[error("flags {:#x} are set, and a private slot takes none", flags.bits())]
    PrivateFlags {
        /// What was asked for.
        flags: Flags,
    },
    /// The size is not a multiple of the page size.
    #[error("size {size:#x} is not a multiple of the page size, 4096")]
    MisalignedSize {
        /// What was asked for, in bytes.
        size: u64,
    },
    /// The guest address is not that of a page.
    #[error("guest address {gpa} is not a multiple of the page size, 4096")]
    MisalignedGpa {
        /// What was asked for.
        gpa: Gpa,
    },
    /// The host memory does not begin with a page.
    #[error("host memory at {position:#x} does not begin at a multiple of the page size, 4096")]
    MisalignedBacking {
        /// Where it begins.
        position: u64,
    },
    /// The host memory does not reach so far.
    #[error("host memory at {position:#x} does not have {size:#x} bytes")]
    BackingTooShort {
        /// Where it begins.
        position: u64,
        /// What was asked for, in bytes.
        size: u64,
    },
    /// The region passes the end of guest physical memory.
    #[error("guest address {gpa} plus size {size:#x} wraps around")]
    GpaWraps {
        /// Where it begins.
        gpa: Gpa,
        /// What was asked for, in bytes.
        size: u64,
    },
    /// The region is new there, and passes the end of what a guest can address.
    #[error(
        "guest address {gpa} plus size {size:#x} is past the last guest frame: they are below {limit}"
    )]
    GpaOutOfRange {
        /// Where it begins.
        gpa: Gpa,
        /// What was asked for, in bytes.
        size: u64,
        /// The first frame that a guest cannot address.
        limit: Gfn,
    },
    /// The region is larger than a user's slot can be.
    #[error("{pages} pages are more than the {MAX_PAGES} that a slot can have")]
    TooManyPages {
        /// What was asked for.
        pages: u64,
    },
    /// A slot that does not exist was to be deleted.
    #[error("{slot} does not exist")]
    NoSuchSlot {
        /// What was asked for.
        slot: SlotId,
    },
    /// An existing slot keeps its size.
    #[error("{slot} has {has:#x} bytes and cannot have {size:#x}")]
    SizeChanged {
        /// The slot.
        slot: SlotId,
        /// Its size, in bytes.
        has: u64,
        /// What was asked for, in bytes.
        size: u64,
    },
    /// An existing slot keeps its host memory.
    #[error("{slot} has host memory at {has:#x} and cannot have it at {position:#x}")]
    BackingChanged {
        /// The slot.
        slot: SlotId,
        /// The position of its memory.
        has: u64,
        /// The position that was asked for.
        position: u64,
    },
    /// An existing slot stays read-only, or writable.
    #[error("{slot} cannot change between read-only and writable")]
    ReadOnlyChanged {
        /// The slot.
        slot: SlotId,
    },
    /// The region overlaps another slot.
    #[error("{slot} would overlap {other}")]
    Overlap {
        /// The slot that was to be set.
        slot: SlotId,
        /// The first slot that it would overlap.
        other: SlotId,
    },
    /// No memory for the change.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

impl Error {
    /// The errno that `KVM_SET_USER_MEMORY_REGION` gives for it: EEXIST for an overlap, ENOMEM for want of memory,
    /// EINVAL for all else.
    pub const fn errno(&self) -> i32 {
        const ENOMEM: i32 = 12;
        const EEXIST: i32 = 17;
        const EINVAL: i32 = 22;
        match self {
            Self::Overlap { .. } => EEXIST,
            Self::OutOfMemory(_) => ENOMEM,
            _ => EINVAL,
        }
    }
}
