//! A VM's disk: frames that it keeps from one life to the next, until it is destroyed. What was never written is zeroes, and
//! takes no memory.

use alloc::sync::Arc;

use mayfly_devices::virtio::{Disk, DiskError};

use super::console::say;
use super::memory::GuestMemory;

const SECTOR: u64 = 512;

/// A VM's disk, as one life of it has it.
pub(super) struct Frames {
    name: alloc::string::String,
    bytes: u64,
    memory: Arc<GuestMemory>,
    /// It was said that there is no memory for what is written.
    is_told: bool,
}

impl Frames {
    /// The disk of the VM `name`, of `bytes` bytes, all of which `memory` has.
    pub(super) fn new(name: &str, bytes: u64, memory: Arc<GuestMemory>) -> Self {
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
            // Once in a life: a guest may try again for ever.
            if !core::mem::replace(&mut self.is_told, true) {
                say!("mayfly: {}: its disk needs more memory than there is", self.name);
            }
            DiskError
        })
    }
}
