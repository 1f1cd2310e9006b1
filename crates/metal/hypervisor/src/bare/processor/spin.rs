//! A lock that is held for a moment with interrupts masked, as they always are while the hypervisor runs.
//!
//! It has tickets: the processor that comes first is served first, so that none waits for ever beside others.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};

pub(crate) use super::arch::spin::{relax, wait_for_interrupt};

/// Data that one processor at a time may touch. Its holder neither waits nor lets another thread have the
/// processor, unless that thread gives it up.
pub(crate) struct SpinLock<T> {
    next: AtomicU32,
    serving: AtomicU32,
    data: UnsafeCell<T>,
}

// SAFETY: one `&mut T` is given out at a time, so sharing the lock moves the access between processors.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T> SpinLock<T> {
    /// A free lock around `data`.
    pub(crate) const fn new(data: T) -> Self {
        Self { next: AtomicU32::new(0), serving: AtomicU32::new(0), data: UnsafeCell::new(data) }
    }

    /// Takes the lock.
    #[inline]
    pub(crate) fn lock(&self) -> SpinGuard<'_, T> {
        self.lock_with(relax)
    }

    /// Takes the lock. Calls `wait`, which does not take it, again and again until it has it.
    #[inline]
    pub(crate) fn lock_with(&self, wait: impl Fn()) -> SpinGuard<'_, T> {
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        // Acquire, pairing with the release in `unlock`.
        while self.serving.load(Ordering::Acquire) != ticket {
            wait();
        }
        SpinGuard { lock: self }
    }

    /// Gives the lock up for a guard that was forgotten: by another thread that goes on in its place.
    ///
    /// # Safety
    ///
    /// The lock is held on this processor, by a guard that was given to [`core::mem::forget`], and nothing uses the
    /// data.
    pub(crate) unsafe fn unlock(&self) {
        let serving = self.serving.load(Ordering::Relaxed);
        self.serving.store(serving.wrapping_add(1), Ordering::Release);
    }
}

/// The lock, held.
pub(crate) struct SpinGuard<'a, T> {
    lock: &'a SpinLock<T>,
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the lock is held, so there is no other reference.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.lock.data.get() }
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: it is this guard that holds it.
        unsafe { self.lock.unlock() }
    }
}
