//! Virtio devices behind registers in memory: virtio 1.2, 4.2 (version 2, no legacy), with split queues, indirect
//! descriptors and the event index.
//!
//! A device has one queue, [`Mmio::serve`] takes one chain from it, and says whether there may be more. So its embedder
//! decides how long it goes on, and where: at the notification, or in a thread.
//!
//! What a driver writes to registers, to its rings and into its requests is never trusted: it is read once, and checked.
//! A request that makes no sense fails. Rings that make none ([`Mmio::is_broken`]) have the device ask for its reset
//! (`DEVICE_NEEDS_RESET`), and nothing is done before that.

mod block;
mod chain;
mod entropy;
mod mmio;
mod queue;

pub use block::{Block, Disk, DiskError, MAX_SEGMENT_BYTES};
pub use entropy::Entropy;
pub use mmio::{Mmio, SIZE, Served};

use crate::memory::GuestMemory;
use chain::{Chain, Malformed};

/// What a device does with what its driver gives it.
pub(crate) trait Backend {
    /// Its number in virtio 1.2, chapter 5.
    const ID: u32;

    /// The bits of its own among the features that it offers.
    fn features(&self) -> u64 {
        0
    }

    /// The byte at `offset` into its configuration; 0 behind the end.
    fn config(&self, offset: u64) -> u8 {
        let _ = offset;
        0
    }

    /// Does what a chain asks for; how many bytes were written to it.
    fn serve(&mut self, chain: &Chain, memory: &impl GuestMemory) -> Result<u32, Malformed>;
}

/// Only this crate's devices are behind [`Mmio`].
mod sealed {
    /// A device of this crate.
    pub trait Device {}
}

/// A device that [`Mmio`] has behind its registers.
#[allow(private_bounds, reason = "a backend speaks of chains, which are this crate's own")]
pub trait Device: Backend + sealed::Device {}

impl<T: Backend + sealed::Device> Device for T {}
