//! The registers of a virtio device as its guest finds them in memory: it reads them without an exit, and each write is one.
//!
//! The page is the guest's own memory, mapped read-only where the registers are. A guest that writes to it at its other
//! address deceives itself alone: nothing is read from it here. The guest may read it past the caches, as registers of a
//! device.

use alloc::sync::Arc;

use mayfly_devices::virtio::{self, CHANGE_ALONE, CHANGING, Mmio, SIZE};
use mayfly_vm::HostFault;

use crate::bare::threads;
use crate::bare::world::memory::GuestMemory;

/// The registers of one device.
pub(super) struct Shown {
    memory: Arc<GuestMemory>,
    at: u64,
    /// Those of [`CHANGING`], as they were shown last.
    words: [u32; CHANGING.len()],
}

fn word<D: virtio::Device>(device: &Mmio<D>, offset: u64) -> u32 {
    let mut bytes = [0; 4];
    device.read(offset, &mut bytes);
    u32::from_le_bytes(bytes)
}

impl Shown {
    /// Shows all of them, from `at` on. The page gets its frame.
    pub(super) fn try_new<D: virtio::Device>(
        device: &Mmio<D>,
        memory: &Arc<GuestMemory>,
        at: u64,
    ) -> Result<Self, HostFault> {
        for offset in (0..SIZE).step_by(4) {
            let value = word(device, offset);
            if value != 0 {
                memory.put_past_caches(at + offset, value)?;
            }
        }
        let words = CHANGING.map(|offset| word(device, offset));
        threads::preemption_point();
        Ok(Self { memory: Arc::clone(memory), at, words })
    }

    /// The driver has written one: shows all that may have changed.
    pub(super) fn is_written<D: virtio::Device>(&mut self, device: &Mmio<D>) {
        self.renew(device, CHANGING.len());
    }

    /// The same where the device has changed by itself.
    pub(super) fn is_served<D: virtio::Device>(&mut self, device: &Mmio<D>) {
        self.renew(device, CHANGE_ALONE);
    }

    fn renew<D: virtio::Device>(&mut self, device: &Mmio<D>, count: usize) {
        for (offset, shown) in CHANGING.into_iter().zip(&mut self.words).take(count) {
            let value = word(device, offset);
            // It has its frame, so it can be written. If not, it is tried again.
            if value != *shown && self.memory.put_past_caches(self.at + offset, value).is_ok() {
                *shown = value;
            }
        }
    }
}
