//! Threads of a test that end together: where one fails, no other waits for it for ever.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn, yield_now};
use std::time::Duration;

/// Looks that find nothing before a thread is given up: a minute at least, on a host that does nothing else. They are
/// counted, and not seconds: where the host is busy, whoever looks is kept from its processor as well.
const LOOKS: u32 = 60_000;

/// Says that a test is over when it is dropped, also by a panic. Each thread that another waits for has one, and who tells
/// threads to stop.
pub(crate) struct Over<'a>(pub(crate) &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Waits until `is_so`. Panics where the test is over, and it is not.
pub(crate) fn until(over: &AtomicBool, mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        assert!(!over.load(Ordering::Acquire) || is_so(), "who was waited for has ended");
        yield_now();
    }
}

/// Waits until `is_so`, which needs nobody but who is at work for good. Panics where it never comes.
pub(crate) fn soon(mut is_so: impl FnMut() -> bool) {
    let comes = (0..LOOKS).any(|look| {
        let is_so = is_so();
        match look {
            _ if is_so => (),
            0..1000 => yield_now(),
            _ => sleep(Duration::from_millis(1)),
        }
        is_so
    });
    assert!(comes, "what was waited for does not come");
}

/// Runs a test that would wait for ever where it fails. It fails then, too.
pub(crate) fn ends(test: impl FnOnce() + Send + 'static) {
    joined(spawn(test));
}

/// What a thread returns. Panics as it did, and where it does not end: a vCPU that nobody brings out is no reason to wait
/// for ever.
pub(crate) fn joined<T>(thread: JoinHandle<T>) -> T {
    soon(|| thread.is_finished());
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}
