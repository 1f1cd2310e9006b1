//! The registers of a virtio device as its guest finds them in memory: it reads them without an exit, and each write is one.
//!
//! The page is the guest's own memory, mapped read-only where the registers are. A guest that writes to it at its other
//! address deceives itself alone: nothing is read from it here. The guest may read it past the caches, as registers of a
//! device.

use alloc::sync::Arc;

use mayfly_devices::virtio::{self, Mmio};
use mayfly_vm::HostFault;

use crate::bare::threads;
use crate::bare::world::memory::GuestMemory;

/// The registers of one device.
pub(super) struct Shown {
    memory: Arc<GuestMemory>,
    at: u64,
    registers: virtio::Shown,
}

impl Shown {
    /// Shows all of them, from `at` on. The page gets its frame: so what is shown later can be.
    pub(super) fn try_new<D: virtio::Device>(
        device: &Mmio<D>,
        memory: &Arc<GuestMemory>,
        at: u64,
    ) -> Result<Self, HostFault> {
        let put = |offset, value| {
            // A device has many registers, and the caller has its lock.
            threads::interrupts::look();
            memory.put_past_caches(at + offset, value)
        };
        let registers = virtio::Shown::try_new(device, put)?;
        threads::preemption_point();
        Ok(Self { memory: Arc::clone(memory), at, registers })
    }

    /// Where they are.
    pub(super) fn place(&self) -> (Arc<GuestMemory>, u64) {
        (Arc::clone(&self.memory), self.at)
    }

    /// The driver has written one: shows all that may have changed.
    pub(super) fn is_written<D: virtio::Device>(&mut self, device: &Mmio<D>) {
        let Self { memory, at, registers } = self;
        registers.is_written(device, |offset, value| memory.put_past_caches(*at + offset, value));
    }

    /// The same where the device has changed by itself.
    pub(super) fn is_served<D: virtio::Device>(&mut self, device: &Mmio<D>) {
        let Self { memory, at, registers } = self;
        registers.is_served(device, |offset, value| memory.put_past_caches(*at + offset, value));
    }
}
