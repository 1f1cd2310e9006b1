//! A lock that is held for a moment, with interrupts masked.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering};

/// Data that one processor at a time may touch. No handler of an interrupt takes a lock.
pub(crate) struct SpinLock<T> {
    held: AtomicBool,
    data: UnsafeCell<T>,
}

// SAFETY: one `&mut T` is given out at a time, so sharing the lock moves the access between processors.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T> SpinLock<T> {
    pub(crate) const fn new(data: T) -> Self {
        Self { held: AtomicBool::new(false), data: UnsafeCell::new(data) }
    }

    pub(crate) fn lock(&self) -> SpinGuard<'_, T> {
        // Acquire, pairing with the release where it is given back.
        while self.held.swap(true, Ordering::Acquire) {
            core::hint::spin_loop();
        }
        SpinGuard(self)
    }
}

/// The lock, held.
pub(crate) struct SpinGuard<'a, T>(&'a SpinLock<T>);

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the lock is held.
        unsafe { &*self.0.data.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held, and `self` is borrowed for as long.
        unsafe { &mut *self.0.data.get() }
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    fn drop(&mut self) {
        self.0.held.store(false, Ordering::Release);
    }
}
