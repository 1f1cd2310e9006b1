//! What the VMs of an embedder are made of.

use mayfly_memslot::Backing;
use mayfly_platform::address::Pfn;
use mayfly_stage2::{Format, Level};

use crate::Device;

/// The kinds that an embedder chooses, once, for all its VMs.
pub trait World: 'static {
    /// Its devices.
    type Device: Device + 'static;
    /// What stands behind a memslot.
    type Backing: Backing;
    /// How its CPUs translate guest addresses.
    type Format: Format;
    /// Who knows which frames the host's memory is in.
    type Memory: HostMemory<Self::Backing>;
}

/// The host's memory, as a VM asks it.
///
/// When something that it said holds no longer, the embedder brackets the change with
/// [`Vm::invalidate_start`](crate::Vm::invalidate_start) and the drop of what that returns.
pub trait HostMemory<B>: Send + Sync {
    /// The frame behind `backing`, brought in if it is not there; for a guest that writes, if `write`.
    ///
    /// Called by any vCPU, several at once, under the VM's SRCU.
    ///
    /// # Errors
    ///
    /// [`HostFault`] says why there is none.
    fn resolve(&self, backing: B, write: bool) -> Result<Resolved, HostFault>;
}

/// Where a page of host memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Its frame.
    pub pfn: Pfn,
    /// The largest block around it of which the same can be said: consecutive frames, at a multiple of the block's size
    /// in the host's addresses and in its frames, with the same rights.
    pub level: Level,
    /// Whether the guest may write it. Always so where a write was asked for.
    pub writable: bool,
}

/// Why there is no frame behind a place in host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostFault {
    /// The host has nothing there. Maps to `EFAULT`.
    #[error("the host has no memory there")]
    NotMapped,
    /// The host allows no writes there. Maps to `EFAULT`.
    #[error("the host's memory there is read-only")]
    ReadOnly,
    /// The host has no frame left. Maps to `ENOMEM`.
    #[error("the host has no memory left")]
    OutOfMemory,
}
