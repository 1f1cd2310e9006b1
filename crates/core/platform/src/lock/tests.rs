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

/// A lock, and a platform. The guard that the other has borrows them for any time.
struct Borrowed(*mut Lock<u32>, *mut Busy);

impl Borrowed {
    fn new(times: u32) -> Self {
        Self(Box::into_raw(Box::new(Lock::new(7))), Box::into_raw(Box::new(Busy::new(times))))
    }

    fn get(&self) -> (&'static Lock<u32>, &'static Busy) {
        // SAFETY: they are there until this is dropped. By then the other has dropped its guard, which each test sees to, and
        // a test uses none of them after that.
        unsafe { (&*self.0, &*self.1) }
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        // SAFETY: both are of `Box::into_raw`, and nobody borrows them any more, as said above.
        unsafe { drop((Box::from_raw(self.0), Box::from_raw(self.1))) };
    }
}

#[test]
fn a_thread_that_others_are_not_to_hold_up_sleeps_as_often_as_it_says_and_no_more() {
    for (times, most, gets) in
        [(1, 1, true), (3, 3, true), (3, 8, true), (4, 3, false), (1, 0, false)]
    {
        let both = Borrowed::new(times);
        let (lock, platform) = both.get();
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
    let both = Borrowed::new(1000);
    let (lock, platform) = both.get();
    taken(lock, platform);
    assert_eq!(*lock.lock(platform), 7);
    assert_eq!(platform.sleeps.load(Ordering::Relaxed), 1000);
}
