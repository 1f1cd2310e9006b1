//! A value that is set once, and read from then on without a lock.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU8, Ordering};

const EMPTY: u8 = 0;
const FILLING: u8 = 1;
const FULL: u8 = 2;

/// A value that is set once, and never dropped.
pub(crate) struct Once<T> {
    state: AtomicU8,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: the one caller that has changed the state from `EMPTY` writes the value. It is read where the state is
// `FULL`, which is stored after that by a release that the reader acquires.
unsafe impl<T: Send + Sync> Sync for Once<T> {}

impl<T> Once<T> {
    pub(crate) const fn new() -> Self {
        Self { state: AtomicU8::new(EMPTY), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// Sets the value, unless it was set before.
    pub(crate) fn set(&self, value: T) {
        let (set, seen) = (Ordering::Acquire, Ordering::Relaxed);
        if self.state.compare_exchange(EMPTY, FILLING, set, seen).is_ok() {
            // SAFETY: no other caller writes it, and no reader reads it before it is full.
            unsafe { (*self.value.get()).write(value) };
            self.state.store(FULL, Ordering::Release);
        }
    }

    /// The value, if it was set.
    #[inline]
    pub(crate) fn get(&self) -> Option<&T> {
        if self.state.load(Ordering::Acquire) != FULL {
            return None;
        }
        // SAFETY: it is full, and is not written again.
        Some(unsafe { (*self.value.get()).assume_init_ref() })
    }
}
