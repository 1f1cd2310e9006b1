//! The ends of runs, which the monitor waits for.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::bare::threads;

/// Changes when a VM has stopped.
static ENDS: AtomicU32 = AtomicU32::new(0);

/// A VM has stopped.
pub(super) fn note() {
    ENDS.fetch_add(1, Ordering::Release);
    threads::wake(&ENDS);
}

/// Waits until a VM stops, until `deadline` (in ticks) at the latest.
pub(super) fn wait(deadline: u64) {
    threads::wait(&ENDS, ENDS.load(Ordering::Relaxed), deadline);
}
