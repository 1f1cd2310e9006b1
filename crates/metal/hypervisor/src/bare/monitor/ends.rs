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

/// Waits until something is so that comes with the end of a VM.
pub(super) fn wait_until(is_so: impl Fn() -> bool) {
    loop {
        let seen = ENDS.load(Ordering::Acquire);
        if is_so() {
            return;
        }
        threads::wait(&ENDS, seen, u64::MAX);
    }
}

/// Waits until a VM stops, until `deadline` (in ticks) at the latest.
pub(super) fn wait(deadline: u64) {
    threads::wait(&ENDS, ENDS.load(Ordering::Relaxed), deadline);
}
