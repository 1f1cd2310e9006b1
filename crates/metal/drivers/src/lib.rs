//! Drivers for the devices of the machine itself: a network card, a disk and a console, all virtio (1.2), and the partitions
//! of the disk.
//!
//! **Nothing waits.** A caller starts what it wants. When the device has interrupted, it takes what is done. Buffers are
//! allocated once, and each has one owner at any time: the device, or a value in the caller's hands.
//!
//! **What is trusted.** A device reaches memory by itself, and nothing here can confine it to its buffers. But what it
//! says in its rings is checked. A buffer that it was not given, or a length that the buffer does not have, neither
//! panics nor reaches other memory. A device whose rings make no sense is [`Broken`], and stopped for good; and so
//! is one that asks for its reset.

#![no_std]

extern crate alloc;

mod buffer;
mod card;
mod console;
mod disk;
mod partitions;
pub mod pci;
mod registers;
mod ring;
mod rooms;
mod start;

pub use card::{Card, FRAME_BYTES, Outgoing, Received};
pub use console::{Change, Console, WRITE_BYTES};
pub use disk::{Disk, DiskInfo, Failed, Operation, PIECE_BYTES, SLOTS, Slot};
pub use partitions::{BadTable, Names, Partition, Partitions, SECTOR};
pub use registers::Registers;
pub use rooms::Rooms;
pub use start::Unusable;
pub use virtio_drivers::transport::mmio::{MmioError, MmioTransport, MmioVersion, VirtIOHeader};
pub use virtio_drivers::transport::{DeviceStatus, DeviceType, InterruptStatus, Transport};
pub use virtio_drivers::{BufferDirection, Hal, PhysAddr};

/// Why a device was stopped, and is not used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// It has said in its rings what cannot be.
    #[error("the device has used a buffer that it was not given")]
    Rings,
    /// It has failed, as it says itself.
    #[error("the device has failed, and asks for its reset")]
    NeedsReset,
    /// Its interrupt is off, as the embedder says.
    #[error("its interrupt was turned off, as another device holds it")]
    Unheard,
}
