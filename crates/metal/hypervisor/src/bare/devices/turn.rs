//! How a vCPU waits for the thread of its VM's devices, for a moment.

use crate::bare::processor::timer;
use crate::bare::threads::Bell;

/// A turn of the thread, which ends when it has done some of the work that a vCPU has left.
pub(super) struct Turn(Bell);

impl Turn {
    pub(super) const fn new() -> Self {
        Self(Bell::new())
    }

    /// It ends.
    pub(super) fn end(&self) {
        self.0.ring();
    }

    /// Leaves the thread work, if `leave` says so, and waits until it has done some, a millisecond at most.
    pub(super) fn wait_after(&self, leave: impl FnOnce() -> bool) {
        let seen = self.0.rung();
        if leave() {
            self.0.wait(seen, timer::ticks() + timer::frequency() / 1000);
        }
    }
}
