//! Ends of VMs that are under way.
//!
//! **An event comes before the answer to what has caused it, and when the VM has stopped.** The thread that ends a VM counts
//! itself here, has the VM stop, hands over the event, and counts itself out, with release. A thread that has seen that the
//! VM has stopped also sees that it was counted in, if the VM's state is under a lock. It hands over no answer before it
//! has read 0 here, with acquire: then the event is at the desk.

use mayfly_platform::sync::{AtomicU32, Ordering};

/// How many ends are under way: the VM may have stopped, and its event is not handed over yet.
#[derive(Debug, Default)]
pub struct Endings(AtomicU32);

impl Endings {
    /// None.
    #[cfg(not(any(mayfly_loom, mayfly_shuttle)))]
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// A VM ends: `stop` has it stop, which others see under a lock, and then `tell` hands over that it has.
    pub fn end(&self, stop: impl FnOnce(), tell: impl FnOnce()) {
        self.0.fetch_add(1, Ordering::Relaxed);
        stop();
        tell();
        self.0.fetch_sub(1, Ordering::Release);
    }

    /// Whether all is handed over of VMs whose stop the caller has seen.
    pub fn are_told(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }
}
