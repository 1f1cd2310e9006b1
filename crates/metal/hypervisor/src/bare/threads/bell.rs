//! What wakes a thread that serves devices.

use core::sync::atomic::{AtomicU32, Ordering};

use super::sleep::wait;
use super::waking::wake;

/// Rings when there is something for its thread to do.
#[derive(Default)]
pub(crate) struct Bell(AtomicU32);

impl Bell {
    /// One that has not rung.
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Wakes its thread.
    pub(crate) fn ring(&self) {
        self.0.fetch_add(1, Ordering::Release);
        wake(&self.0);
    }

    /// How often it has rung: for [`Bell::wait`].
    pub(crate) fn rung(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// Waits until it has rung more often than `seen`, until `deadline` (in ticks) at the latest.
    pub(crate) fn wait(&self, seen: u32, deadline: u64) {
        wait(&self.0, seen, deadline);
    }
}
