//! What can go wrong.

use mayfly_platform::address::{Gfn, Pfn};
use mayfly_platform::memory::OutOfMemory;

/// Why a call was refused. What was mapped is as it was, except where a call maps many pages: see there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no frame for a table. Maps to `ENOMEM`.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// The VM has as many frames of tables as it may ([`Config::max_frames`](crate::Config::max_frames)), those that
    /// await reclaim included. Maps to `ENOMEM`.
    #[error(
        "the VM's stage-2 tables have reached their limit of {limit} frames (`Config::max_frames`)"
    )]
    TableLimit {
        /// How many it may have.
        limit: usize,
    },
    /// The format has no such guest frame. Maps to `EINVAL`.
    #[error("guest frame {gfn} is out of range: the format has guest frames below {limit}")]
    OutOfRange {
        /// The frame asked for.
        gfn: Gfn,
        /// The first number that is too large.
        limit: Gfn,
    },
    /// No entry of the format can name the host frame, or the last of those that follow it. Maps to `EFAULT`.
    #[error(
        "host frame {pfn} is out of range: entries of the format can name frames below {limit}"
    )]
    PfnOutOfRange {
        /// The first of the frames that were to be mapped, or that a table was to be in.
        pfn: Pfn,
        /// The first number that is too large.
        limit: Pfn,
    },
    /// A block that the format does not have, or that does not lie at a multiple of its size. Maps to `EINVAL`.
    #[error(
        "host frame {pfn} cannot be mapped at this size: the format has no such block, or the frames are not aligned to it"
    )]
    Misaligned {
        /// The host frame that was to be mapped.
        pfn: Pfn,
    },
    /// The VM has been destroyed, so it gets no root any more. Maps to `EIO`.
    #[error("the VM has been destroyed, so it gets no root")]
    Destroyed,
}

impl Error {
    /// The errno that KVM gives for this.
    pub fn errno(&self) -> i32 {
        match self {
            Self::OutOfMemory(_) | Self::TableLimit { .. } => 12,
            Self::OutOfRange { .. } | Self::Misaligned { .. } => 22,
            Self::PfnOutOfRange { .. } => 14,
            Self::Destroyed => 5,
        }
    }
}
