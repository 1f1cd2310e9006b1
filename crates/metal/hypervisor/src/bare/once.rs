//! What is learnt once, and read from then on by everybody without a lock.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU8, Ordering};

const EMPTY: u8 = 0;
const FILLING: u8 = 1;
const FULL: u8 = 2;

/// A value that is set once, and never dropped.
pub(super) struct Once<T> {
    state: AtomicU8,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: the value is written by whoever has changed the state from `EMPTY`, which one does; and read where the state is
// `FULL`, which is stored after that by a release that the reader acquires.
unsafe impl<T: Send + Sync> Sync for Once<T> {}

impl<T> Once<T> {
    pub(super) const fn new() -> Self {
        Self { state: AtomicU8::new(EMPTY), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// Sets it, unless that was done.
    pub(super) fn set(&self, value: T) {
        let (set, seen) = (Ordering::Acquire, Ordering::Relaxed);
        if self.state.compare_exchange(EMPTY, FILLING, set, seen).is_ok() {
            // SAFETY: nobody else writes it, and nobody reads it before it is full.
            unsafe { (*self.value.get()).write(value) };
            self.state.store(FULL, Ordering::Release);
        }
    }

    /// What it was set to, if that was done.
    #[inline]
    pub(super) fn get(&self) -> Option<&T> {
        if self.state.load(Ordering::Acquire) != FULL {
            return None;
        }
        // SAFETY: it is full, and is not written again.
        Some(unsafe { (*self.value.get()).assume_init_ref() })
    }
}
