//! Threads of a test that end together: where one fails, no other waits for it for ever.
//!
//! What is waited for is counted in looks, and not in seconds: where the host is busy, the thread that looks is kept
//! from its processor as well.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, ScopedJoinHandle, sleep, spawn, yield_now};
use std::time::Duration;

/// Looks that find nothing before it is given up: a minute at least, on a host that does nothing else.
const LOOKS: u32 = 60_000;

/// Says that a test is over when it is dropped, also by a panic. Each thread that another waits for has one, and who tells
/// threads to stop.
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use mayfly_platform::testing::threads::Over;
///
/// let over = AtomicBool::new(false);
/// std::thread::scope(|scope| {
///     scope.spawn(|| while !over.load(Ordering::Acquire) {});
///     let _over = Over(&over);
///     // What fails here ends the other thread, too.
/// });
/// ```
#[derive(Debug)]
pub struct Over<'a>(pub &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Waits until `is_so`, which another thread sees to that has an [`Over`].
///
/// # Panics
/// The test is over, and it is not so.
pub fn until(over: &AtomicBool, mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        assert!(!over.load(Ordering::Acquire) || is_so(), "who was waited for has ended");
        yield_now();
    }
}

/// Waits until `is_so`, which `thread` sees to.
///
/// # Panics
/// The thread has ended, and it is not so.
pub fn by<T>(thread: &ScopedJoinHandle<'_, T>, mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        assert!(!thread.is_finished() || is_so(), "who was waited for has ended");
        yield_now();
    }
}

/// Waits until `is_so`, which others see to that do not wait for this thread.
///
/// # Panics
/// It has not come to be so in many looks: for a minute at least.
pub fn soon(mut is_so: impl FnMut() -> bool) {
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

/// Runs a test that would wait for ever where it fails.
///
/// # Panics
/// As the test does, and as [`joined`] does.
pub fn ends(test: impl FnOnce() + Send + 'static) {
    joined(spawn(test));
}

/// What a thread returns.
///
/// # Panics
/// As the thread did; and where it has not ended in many looks, as [`soon`] has them.
pub fn joined<T>(thread: JoinHandle<T>) -> T {
    soon(|| thread.is_finished());
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn panics(test: impl FnOnce() + Send + 'static) -> bool {
        spawn(test).join().is_err()
    }

    #[test]
    fn a_thread_that_fails_ends_those_that_wait_for_it() {
        assert!(panics(|| {
            let over = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| until(&over, || false));
                let _over = Over(&over);
                panic!("it fails");
            });
        }));
    }

    #[test]
    fn who_ends_without_what_was_waited_for_is_named_and_who_ends_with_it_is_not() {
        assert!(panics(|| thread::scope(|scope| by(&scope.spawn(|| ()), || false))));
        let is_so = AtomicBool::new(false);
        thread::scope(|scope| {
            let sets = scope.spawn(|| is_so.store(true, Ordering::Release));
            by(&sets, || is_so.load(Ordering::Acquire));
        });
    }

    #[test]
    fn a_thread_s_result_and_its_panic_are_who_joins_it_s() {
        assert_eq!(joined(spawn(|| 5)), 5);
        assert!(panics(|| ends(|| panic!("it fails"))));
    }
}
