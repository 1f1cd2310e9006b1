//! Virtio devices behind registers in memory: virtio 1.2, 4.2 (version 2, no legacy), with split queues, indirect
//! descriptors and the event index.
//!
//! [`Mmio::serve`] takes one chain from the queue in which the driver asks for something, and says whether there may be
//! more. So its embedder decides how long it goes on, and where: at the notification, or in a thread. A network card has
//! queues of frames, too ([`net`]), the requests of a [`Remote`] disk are carried out elsewhere, and a [`Console`] has what
//! its guest sends taken in pieces, and so has a [`Balloon`] the pages that its guest gives back.
//!
//! The device never trusts what a driver writes to registers, to its rings and into its requests: it reads it once, and
//! checks it. A request that makes no sense fails. If the rings make no sense ([`Mmio::is_broken`]), the device asks
//! for its reset (`DEVICE_NEEDS_RESET`), and does nothing before that.

mod backend;
mod balloon;
mod block;
mod chain;
mod console;
mod entropy;
mod mmio;
mod queue;
mod shown;

pub mod net;

pub use backend::Device;
pub use balloon::{Balloon, Contents, MOST_RANGES, PAGE_BYTES};
pub use block::{
    Block, Clearing, Disk, DiskError, MAX_SEGMENT_BYTES, Remote, Request, Taken, Work,
};
pub use console::Console;
pub use entropy::Entropy;
pub use mmio::{Mmio, NotDrained, SIZE, STATE, Served};
pub use shown::Shown;
