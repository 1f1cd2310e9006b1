//! Where the interrupt lines of a run's devices lead: to an interrupt controller, in whose place a reset puts another.

use alloc::sync::Arc;

use super::arch::{Controller, set_line};
use crate::bare::processor::spin::SpinLock;

/// The lines of some devices.
pub(crate) struct Lines(SpinLock<Arc<Controller>>);

impl Lines {
    /// Lines to that controller.
    pub(crate) fn new(controller: &Arc<Controller>) -> Self {
        Self(SpinLock::new(Arc::clone(controller)))
    }

    /// Where they lead now.
    pub(crate) fn controller(&self) -> Arc<Controller> {
        Arc::clone(&self.0.lock())
    }

    /// They lead to another controller from now on. A device whose line is high drives it again.
    pub(crate) fn lead_to(&self, controller: &Arc<Controller>) {
        let before = core::mem::replace(&mut *self.0.lock(), Arc::clone(controller));
        drop(before);
    }

    /// Sets the line of an interrupt.
    pub(crate) fn set(&self, interrupt: u32, level: bool) {
        // The lock is not held meanwhile: a vCPU may be kicked.
        set_line(&self.controller(), interrupt, level);
    }
}
