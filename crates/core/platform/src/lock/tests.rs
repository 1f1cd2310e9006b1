use core::cell::RefCell;
use std::boxed::Box;

use super::{Lock, LockGuard};
use crate::sync::{AtomicU32, Ordering};
use crate::time::Instant;
use crate::{Context, Identity, Platform, ReaderBarrier};

/// A platform where another thread has taken the lock again whenever a sleep ends, so many times.
struct Busy {
    times: u32,
    sleeps: AtomicU32,
    wakes: AtomicU32,
}

impl Busy {
    fn new(times: u32) -> Self {
        Self { times, sleeps: AtomicU32::new(0), wakes: AtomicU32::new(0) }
    }
}

std::thread_local! {
    static OTHER: RefCell<Option<Box<dyn FnOnce()>>> = RefCell::new(None);
}

// SAFETY: one thread alone uses it, so no barrier orders anything.
unsafe impl Platform for Busy {
    fn identity(&self) -> Identity {
        Identity::new(0)
    }

    fn wait(&self, word: &AtomicU32, expected: u32) {
        assert_eq!(word.load(Ordering::Relaxed), expected, "a sleep that would not begin");
        if self.sleeps.fetch_add(1, Ordering::Relaxed) + 1 == self.times {
            OTHER.take().expect("the other has the lock")();
        }
    }

    fn wait_until(&self, word: &AtomicU32, expected: u32, _deadline: Instant) {
        self.wait(word, expected);
    }

    fn wake(&self, _word: &AtomicU32) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(0)
    }

    fn reader_barrier(&self) -> ReaderBarrier {
        ReaderBarrier::Fenced
    }

    fn heavy_barrier(&self) {}

    fn context(&self) -> Option<Context> {
        None
    }
}

/// Has the other take the lock, until the platform has it release the lock.
fn taken(lock: &'static Lock<u32>, platform: &'static Busy) {
    let held: LockGuard<'static, u32> = lock.lock(platform);
    OTHER.set(Some(Box::new(|| drop(held))));
}

fn leaked(times: u32) -> (&'static Lock<u32>, &'static Busy) {
    (Box::leak(Box::new(Lock::new(7))), Box::leak(Box::new(Busy::new(times))))
}

#[test]
fn a_thread_that_others_are_not_to_hold_up_sleeps_as_often_as_it_says_and_no_more() {
    for (times, most, gets) in
        [(1, 1, true), (3, 3, true), (3, 8, true), (4, 3, false), (1, 0, false)]
    {
        let (lock, platform) = leaked(times);
        taken(lock, platform);
        let got = lock.lock_within(most, platform).map(|guard| *guard);
        assert_eq!(got, gets.then_some(7), "{times} {most}");
        assert_eq!(platform.sleeps.load(Ordering::Relaxed), times.min(most));
        if !gets {
            OTHER.take().expect("the other has the lock")();
        }
        // The mark that a sleeper leaves is for nobody then, and does no harm.
        assert!(platform.wakes.load(Ordering::Relaxed) > 0);
        assert!(lock.try_lock(platform).is_some());
    }
}

#[test]
fn a_thread_that_waits_for_good_sleeps_as_often_as_others_have_the_lock() {
    let (lock, platform) = leaked(1000);
    taken(lock, platform);
    assert_eq!(*lock.lock(platform), 7);
    assert_eq!(platform.sleeps.load(Ordering::Relaxed), 1000);
}
