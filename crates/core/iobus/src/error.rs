//! What a bus refuses, and why.
//!
//! `error.rs`, `range.rs` and `ioeventfd.rs` import each other: an error names the range or the ioeventfd, and each of
//! those two is checked where it is defined.

use core::fmt;

use mayfly_platform::memory::OutOfMemory;

use crate::{IoRange, Ioeventfd, MAX_DEVICES};

/// Why a bus was not changed. It names the range or the ioeventfd at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The range has no address. `EINVAL`.
    #[error("the range {0} is empty")]
    ZeroLength(IoRange),
    /// The end of the range is past what a `u64` holds. `EINVAL`.
    #[error("the range {0} wraps around the end of the address space")]
    Overflow(IoRange),
    /// Another device has some of the addresses. `EEXIST`.
    #[error("the range {range} overlaps the device at {with}")]
    Overlap {
        /// What was asked for.
        range: IoRange,
        /// The first device in the way.
        with: IoRange,
    },
    /// The bus has [`MAX_DEVICES`] devices already. `ENOSPC`.
    #[error(
        "no room for a device at {0}: the bus has {MAX_DEVICES} devices, the most that it can have"
    )]
    Full(IoRange),
    /// No device has exactly this range. `ENOENT`.
    #[error("no device is registered at exactly {0}")]
    NoDevice(IoRange),
    /// The length is none of 0 (any), 1, 2, 4 and 8. `EINVAL`.
    #[error("the length of the ioeventfd {0} is none of 1, 2, 4, 8 and 0 (any length)")]
    EventfdLength(Ioeventfd),
    /// The write's end is past what a `u64` holds. `EINVAL`.
    #[error("the ioeventfd {0} wraps around the end of the address space")]
    EventfdOverflow(Ioeventfd),
    /// A value was given to compare with, and no length to compare. `EINVAL`.
    #[error("the ioeventfd {0} has a datamatch without a length: give it 1, 2, 4 or 8 bytes")]
    EventfdDatamatchWithoutLength(Ioeventfd),
    /// One write could match both. `EEXIST`.
    #[error("a write could match the ioeventfd {eventfd} and also {with}")]
    Collision {
        /// What was asked for.
        eventfd: Ioeventfd,
        /// The first ioeventfd in the way.
        with: Ioeventfd,
    },
    /// No ioeventfd has exactly this address, length and datamatch. `ENOENT`.
    #[error("no ioeventfd is registered as exactly {0}")]
    NoEventfd(Ioeventfd),
    /// The domain's hard bound of deferred memory is reached, and this call does not wait. `EAGAIN`.
    #[error(
        "the domain's hard bound of deferred memory is reached: try again after a grace period"
    )]
    AtBound,
    /// No memory for the new version of the bus. `ENOMEM`.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

impl Error {
    /// The number that Linux returns for it (without the sign).
    pub fn errno(&self) -> i32 {
        const ENOENT: i32 = 2;
        const EAGAIN: i32 = 11;
        const ENOMEM: i32 = 12;
        const EEXIST: i32 = 17;
        const EINVAL: i32 = 22;
        const ENOSPC: i32 = 28;
        match self {
            Self::ZeroLength(_)
            | Self::Overflow(_)
            | Self::EventfdLength(_)
            | Self::EventfdOverflow(_)
            | Self::EventfdDatamatchWithoutLength(_) => EINVAL,
            Self::Overlap { .. } | Self::Collision { .. } => EEXIST,
            Self::Full(_) => ENOSPC,
            Self::NoDevice(_) | Self::NoEventfd(_) => ENOENT,
            Self::AtBound => EAGAIN,
            Self::OutOfMemory(_) => ENOMEM,
        }
    }
}

/// A device that was not registered, given back with the reason.
pub struct Refused<D> {
    /// The reason.
    pub error: Error,
    /// The device.
    pub device: D,
}

impl<D> From<Refused<D>> for Error {
    /// The reason; the device is dropped.
    fn from(refused: Refused<D>) -> Self {
        refused.error
    }
}

impl<D> fmt::Debug for Refused<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<D> fmt::Display for Refused<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<D> core::error::Error for Refused<D> {}
