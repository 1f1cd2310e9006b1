//! Virtio devices behind registers in memory: virtio 1.2, 4.2 (version 2, no legacy), with split queues, indirect
//! descriptors and the event index.
//!
//! A device has one queue, [`Mmio::serve`] takes one chain from it, and says whether there may be more. So its embedder
//! decides how long it goes on, and where: at the notification, or in a thread.
//!
//! What a driver writes to registers, to its rings and into its requests is never trusted: it is read once, and checked.
//! A request that makes no sense fails. Rings that make none ([`Mmio::is_broken`]) have the device ask for its reset
//! (`DEVICE_NEEDS_RESET`), and nothing is done before that.

mod backend;
mod block;
mod chain;
mod entropy;
mod mmio;
mod queue;

pub use backend::Device;
pub use block::{Block, Disk, DiskError, MAX_SEGMENT_BYTES};
pub use entropy::Entropy;
pub use mmio::{Mmio, SIZE, Served};
