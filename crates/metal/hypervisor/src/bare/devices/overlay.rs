//! What a VM has written of a partition that is not written: in frames of the VM's, from its start to its end.
//!
//! The frames are guaranteed to the VM, and are given when they are first written to. Behind the data there is a bit for each
//! sector that was written ([`overlay`]). The thread of the VM's devices alone uses them.

use alloc::sync::Arc;

use mayfly_devices::virtio::DiskError;
use mayfly_hypervisor::overlay::{self, SECTOR, Words};

use crate::bare::world::memory::GuestMemory;

/// What was written.
pub(crate) struct Overlay {
    memory: Arc<GuestMemory>,
    /// Where the bits begin.
    bits: u64,
}

impl Overlay {
    /// That of a partition of so many sectors. `memory` has [so many](overlay::bytes) bytes.
    pub(crate) fn new(memory: Arc<GuestMemory>, sectors: u64) -> Self {
        Self { memory, bits: overlay::bytes(sectors).0 }
    }

    /// How many of `len` bytes from `start` on, which are whole sectors, are all here, or all the partition's; and whether
    /// they are here.
    pub(crate) fn part(&self, start: u64, len: u64) -> Result<(u64, bool), DiskError> {
        let (first, count) = (start / SECTOR, len / SECTOR);
        let (count, is_here) = overlay::part(self, first..first + count)?;
        Ok((count * SECTOR, is_here))
    }

    /// Reads bytes that are here.
    pub(crate) fn read(&self, start: u64, into: &mut [u8]) -> Result<(), DiskError> {
        self.memory.read(start, into).map_err(|_| DiskError)
    }

    /// Writes whole sectors. They are here from now on.
    pub(crate) fn write(&self, start: u64, from: &[u8]) -> Result<(), DiskError> {
        self.memory.write(start, from).map_err(|_| DiskError)?;
        let first = start / SECTOR;
        overlay::mark(self, first..first + from.len() as u64 / SECTOR)
    }
}

impl Words for Overlay {
    type Error = DiskError;

    fn read(&self, word: u64) -> Result<u64, DiskError> {
        let mut bytes = [0; 8];
        self.memory.read(self.bits + 8 * word, &mut bytes).map_err(|_| DiskError)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn write(&self, word: u64, bits: u64) -> Result<(), DiskError> {
        self.memory.write(self.bits + 8 * word, &bits.to_le_bytes()).map_err(|_| DiskError)
    }
}
