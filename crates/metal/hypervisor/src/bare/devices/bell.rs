//! What wakes the thread of a VM's devices.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::bare::threads;

/// Rings when there is something for the thread of the devices to do.
#[derive(Default)]
pub(crate) struct Bell(AtomicU32);

impl Bell {
    /// Wakes the thread of the devices.
    pub(crate) fn ring(&self) {
        self.0.fetch_add(1, Ordering::Release);
        threads::wake(&self.0);
    }

    /// How often it has rung: for [`Bell::wait`].
    pub(crate) fn rung(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// Waits until it has rung more often than `seen`, until `deadline` (in ticks) at the latest.
    pub(crate) fn wait(&self, seen: u32, deadline: u64) {
        threads::wait(&self.0, seen, deadline);
    }
}
