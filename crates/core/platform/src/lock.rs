//! A lock for writers, asleep in the platform while it waits.
//!
//! No path that a vCPU takes while it runs the guest may use it. It serialises threads that *change* something.
//!
//! Protocol: `state` is `FREE`, `HELD`, or `CONTENDED` (held, and a thread may sleep). Taking it is an acquire and
//! releasing it a release, so one holder sees what the holder before it wrote. A waiter marks the word `CONTENDED` and
//! sleeps on that value. A holder that releases a `CONTENDED` lock wakes all waiters. For the waker, the mark and the
//! sleep are one step ([`Platform::wait`] compares again), so no wake-up is lost. A waiter that gives up leaves the mark: one
//! wake-up is then for nobody. (The three states are those of
//! Drepper, "Futexes Are Tricky", 2011, section 6.)

use core::cell::UnsafeCell;
use core::hint::black_box;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

use crate::sync::{AtomicU32, Ordering, spin_loop};
use crate::{Platform, no_unwind};

#[cfg(all(test, not(mayfly_loom), not(mayfly_shuttle)))]
mod tests;

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

/// Tries before sleeping: the sections under such a lock are short.
const SPINS: u32 = if cfg!(any(mayfly_loom, mayfly_shuttle)) { 0 } else { 64 };

/// Data that one thread at a time may touch. Its guard is shared between threads only if the data may be:
///
/// ```compile_fail,E0277
/// use std::cell::Cell;
/// use mayfly_platform::lock::LockGuard;
///
/// fn shared<T: Sync>() {}
/// shared::<LockGuard<Cell<u32>>>();
/// ```
#[derive(Debug)]
pub struct Lock<T> {
    state: AtomicU32,
    data: UnsafeCell<T>,
}

// SAFETY: the lock hands out one `&mut T` at a time, so sharing the lock moves the access between threads (`T: Send`).
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// A free lock around `data`.
    pub fn new(data: T) -> Self {
        Self { state: AtomicU32::new(FREE), data: UnsafeCell::new(data) }
    }

    /// Takes the lock, asleep in `platform` while another thread has it.
    #[inline]
    pub fn lock<'a>(&'a self, platform: &'a dyn Platform) -> LockGuard<'a, T> {
        if !take(&self.state) {
            lock_contended(&self.state, u32::MAX, platform);
        }
        LockGuard::new(self, platform)
    }

    /// As [`Lock::lock`], but for a thread that others may not hold up by taking the lock over and over: it sleeps at most
    /// `most` times. A thread that releases the lock ends such a sleep.
    #[inline]
    pub fn lock_within<'a>(
        &'a self,
        most: u32,
        platform: &'a dyn Platform,
    ) -> Option<LockGuard<'a, T>> {
        let has_taken = take(&self.state) || lock_contended(&self.state, most, platform);
        has_taken.then(|| LockGuard::new(self, platform))
    }

    /// Takes the lock if no thread has it.
    #[inline]
    pub fn try_lock<'a>(&'a self, platform: &'a dyn Platform) -> Option<LockGuard<'a, T>> {
        take(&self.state).then(|| LockGuard::new(self, platform))
    }

    /// The data, when no other thread can have the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.data.get_mut()
    }
}

#[inline]
fn take(state: &AtomicU32) -> bool {
    state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

/// Takes a lock, if it can with at most `most` sleeps, where `u32::MAX` is no bound.
///
/// One for all types of data, and a loop: where the compiler knows how often it goes round, it is written out so often.
#[cold]
#[inline(never)]
fn lock_contended(state: &AtomicU32, most: u32, platform: &dyn Platform) -> bool {
    for _ in 0..black_box(SPINS) {
        if take(state) {
            return true;
        }
        spin_loop();
    }
    let mut left = most;
    while state.swap(CONTENDED, Ordering::Acquire) != FREE {
        match left {
            0 => return false,
            u32::MAX => {}
            _ => left -= 1,
        }
        // A panic here would leave the mark behind, and leave its sleepers to the next thread that takes the lock.
        no_unwind(|| platform.wait(state, CONTENDED));
    }
    true
}

/// The right to touch what a [`Lock`] protects, until dropped.
#[must_use]
pub struct LockGuard<'a, T> {
    lock: &'a Lock<T>,
    platform: &'a dyn Platform,
    /// What it stands for: a guard that two threads share gives both a `&T`.
    data: PhantomData<&'a mut T>,
}

impl<'a, T> LockGuard<'a, T> {
    /// For a thread that has just taken `lock`.
    #[inline]
    fn new(lock: &'a Lock<T>, platform: &'a dyn Platform) -> Self {
        Self { lock, platform, data: PhantomData }
    }
}

impl<T> Deref for LockGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one, see `Lock`.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T> DerefMut for LockGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one, see `Lock`.
        unsafe { &mut *self.lock.data.get() }
    }
}

impl<T> Drop for LockGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.lock.state.swap(FREE, Ordering::Release) == CONTENDED {
            // The lock is free, and the threads that sleep for it do not know: no thread would wake them.
            no_unwind(|| self.platform.wake(&self.lock.state));
        }
    }
}
