//! Devices that move.

use crate::{IoRange, Ioeventfd};

/// What is to answer elsewhere: a device whose BAR the guest moves, say, or one of its doorbells.
///
/// The device itself stays where it is, and so does whatever it knows; only the version of the bus is another. So there
/// is no device to be freed, and no moment at which there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Relocation {
    /// The device that has exactly one range.
    Device {
        /// Where it is.
        from: IoRange,
        /// Where it will be. May be of another length, and overlap what it had.
        to: IoRange,
    },
    /// The ioeventfd of exactly one address, length and datamatch.
    Eventfd {
        /// What it is now.
        from: Ioeventfd,
        /// What it will be.
        to: Ioeventfd,
    },
}
