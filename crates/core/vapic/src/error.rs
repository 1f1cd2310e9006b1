//! The errors of creating the APICs of a VM, and of using them.

use mayfly_platform::memory::OutOfMemory;

use crate::{MAX_VCPUS, PINS};

/// Why a [`Vapic`](crate::Vapic) cannot be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not 1 to [`MAX_VCPUS`] vCPUs. `EINVAL`.
    #[error("{0} vCPUs cannot be named by interrupts: 1 to {MAX_VCPUS} can")]
    Vcpus(usize),
    /// Not 32 to 52 bits of physical address. `EINVAL`.
    #[error("a guest cannot have {0} bits of physical address: it has 32 to 52")]
    PhysicalBits(u32),
    /// No memory for it. `ENOMEM`.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

/// The guest's RDMSR or WRMSR ends in a general-protection fault (`#GP(0)`). Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the guest's access to an MSR of its APIC is a general-protection fault")]
pub struct GeneralProtection;

/// The IOAPIC has no such pin. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the IOAPIC has no pin {0}: it has 0 to {last}", last = PINS - 1)]
pub struct NoSuchPin(pub usize);
