//! The errors of creating a GIC and of injecting an interrupt.

use mayfly_platform::memory::OutOfMemory;

use crate::{MAX_LIST_REGISTERS, MAX_SPIS, MAX_VCPUS};

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
