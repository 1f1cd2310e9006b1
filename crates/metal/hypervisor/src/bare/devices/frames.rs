//! A disk in memory: frames that a VM keeps from one run to the next, until it is destroyed. What was never written reads
//! as zeroes, and has no frame yet; the VM is guaranteed one for each page.

use alloc::sync::Arc;

use mayfly_devices::virtio::{Disk, DiskError};

use crate::bare::world::memory::GuestMemory;

const SECTOR: u64 = 512;

/// The disk of a VM, as one run of it has it.
pub(crate) struct Frames {
    bytes: u64,
    memory: Arc<GuestMemory>,
}

impl Frames {
    /// A disk of `bytes` bytes, which are in `memory`.
    pub(crate) fn new(bytes: u64, memory: Arc<GuestMemory>) -> Self {
        Self { bytes, memory }
    }
}

impl Disk for Frames {
    fn sectors(&self) -> u64 {
        self.bytes / SECTOR
    }

    fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        self.memory.read(offset, into).map_err(|_| DiskError)
    }

    fn write(&mut self, offset: u64, from: &[u8]) -> Result<(), DiskError> {
        // The memory is guaranteed: the offset is what can be wrong.
        self.memory.write(offset, from).map_err(|_| DiskError)
    }
}
