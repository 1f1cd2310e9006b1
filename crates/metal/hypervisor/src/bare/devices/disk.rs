//! The disk of a VM: frames that it keeps from one run to the next, until it is destroyed. What was never written reads
//! as zeroes, and takes no memory.

use alloc::sync::Arc;

use mayfly_devices::virtio::{Disk, DiskError};

use crate::bare::threads::console::say;
use crate::bare::world::memory::GuestMemory;

const SECTOR: u64 = 512;

/// The disk of a VM, as one run of it has it.
pub(crate) struct Frames {
    name: alloc::string::String,
    bytes: u64,
    memory: Arc<GuestMemory>,
    /// The message that there is no memory for a write was printed.
    is_told: bool,
}

impl Frames {
    /// The disk of the VM `name`, of `bytes` bytes, which are in `memory`.
    pub(crate) fn new(name: &str, bytes: u64, memory: Arc<GuestMemory>) -> Self {
        Self { name: name.into(), bytes, memory, is_told: false }
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
        self.memory.write(offset, from).map_err(|_| {
            // Once in a run: a guest may try again for ever.
            if !core::mem::replace(&mut self.is_told, true) {
                say!("mayfly: {}: there is no memory for what it writes to its disk", self.name);
            }
            DiskError
        })
    }
}
