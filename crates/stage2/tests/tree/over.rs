//! Threads of a test that end together: where one fails, no other waits for it for ever.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, yield_now};
use std::time::Duration;

/// Looks that find nothing before it is given up: a minute at least, on a host that does nothing else. They are counted,
/// and not seconds: where the host is busy, whoever looks is kept from its processor as well.
const LOOKS: u32 = 60_000;

/// Ends the others' work when dropped: a test that fails on one thread ends on all.
pub(crate) struct Over<'a>(pub(crate) &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits until `is_so`, which others see to that do not wait for this thread. Panics where it never comes.
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

/// What a thread returns. Panics as it did, and where it does not end.
pub(crate) fn joined<T>(thread: JoinHandle<T>) -> T {
    soon(|| thread.is_finished());
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}
