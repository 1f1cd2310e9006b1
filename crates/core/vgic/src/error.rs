//! The errors of creating a GIC and of injecting an interrupt.

use mayfly_platform::memory::OutOfMemory;

use crate::{MAX_LIST_REGISTERS, MAX_LPIS, MAX_SPIS, MAX_VCPUS};

/// Why a [`Vgic`](crate::Vgic) cannot be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not 1 to [`MAX_VCPUS`] vCPUs. `EINVAL`.
    #[error("a GIC cannot have {0} vCPUs: it has 1 to {MAX_VCPUS}")]
    Vcpus(usize),
    /// More than [`MAX_SPIS`] SPIs. `EINVAL`.
    #[error("a GIC cannot have {0} SPIs: it has at most {MAX_SPIS}")]
    Spis(usize),
    /// Not 1 to [`MAX_LIST_REGISTERS`] list registers. `EINVAL`.
    #[error("a CPU interface cannot have {0} list registers: it has 1 to {MAX_LIST_REGISTERS}")]
    ListRegisters(usize),
    /// Not a power of two of 64 to [`MAX_LPIS`] LPIs. `EINVAL`.
    #[error("an ITS cannot have {0} LPIs: it has a power of two, of 64 to {MAX_LPIS}")]
    Lpis(usize),
    /// Numbers of devices or of events that are not 1 to 15 bits each, or more than 16 bits together. `EINVAL`.
    #[error(
        "numbers of devices cannot have {device_bits} bits with {event_bits} bits of events: they have 1 to 15 bits each, and 16 together at most"
    )]
    Events {
        /// Bits of the number of a device.
        device_bits: u32,
        /// Bits of the number of an event.
        event_bits: u32,
    },
    /// What is to be linked is no PPI (16 to 31), or is linked twice, or what it is to be linked to is none of hardware's
    /// (16 to 1019). `EINVAL`.
    #[error(
        "PPI {ppi} cannot be linked to the physical interrupt {physical}: link each of 16 to 31 once, to one of 16 to 1019"
    )]
    Link {
        /// The guest's interrupt.
        ppi: u32,
        /// The hardware's.
        physical: u32,
    },
    /// No memory for it. `ENOMEM`.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

/// The GIC has no such interrupt, or no such vCPU. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no interrupt {intid} of vCPU {vcpu}")]
pub struct NoSuchInterrupt {
    /// The vCPU that was named; 0 for an SPI, which belongs to no vCPU.
    pub vcpu: usize,
    /// The number that was named.
    pub intid: u32,
}

/// The ITS does not translate the event of a device: it is turned off, or the guest has not mapped the event, or not the
/// device, or not the collection. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("event {event} of device {device} is not mapped to an interrupt")]
pub struct NotMapped {
    /// The device that was named.
    pub device: u32,
    /// The event that was named.
    pub event: u32,
}
