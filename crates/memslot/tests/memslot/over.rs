//! Threads of a test that end together: where one fails, no other waits for it for ever.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{ScopedJoinHandle, yield_now};

/// Says that a test is over when it is dropped, also by a panic: who tells threads to stop has one.
pub(crate) struct Over<'a>(pub(crate) &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits until `is_so`. Panics where it is not when `thread`, which is to see to it, has ended.
pub(crate) fn until<T>(thread: &ScopedJoinHandle<'_, T>, mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        assert!(!thread.is_finished() || is_so(), "who was waited for has ended");
        yield_now();
    }
}
