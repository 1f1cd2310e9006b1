//! How a thread waits for a grace period that is paced as Linux: behind a callback of its own.

use core::ptr::NonNull;

use mayfly_platform::sync::{AtomicBool, Ordering};

use crate::callback::{Act, Callback, Head};
use crate::domain::Domain;

/// A callback on the stack of the thread that waits for it (`struct rcu_synchronize`).
#[repr(C)]
pub(super) struct Waiter {
    head: core::cell::UnsafeCell<Head>,
    done: AtomicBool,
}

impl Waiter {
    pub(super) fn new() -> Self {
        /// `wakeme_after_rcu`, but for the wake-up, which follows when the batch has run (`LinuxPace::invoke`).
        unsafe fn act(head: NonNull<Head>, act: Act) {
            // SAFETY: `callback` made `head` from a `Waiter`, whose first field it is, and `wait` keeps that until
            // `done`. The store is the last thing that touches it.
            let waiter = unsafe { head.cast::<Waiter>().as_ref() };
            if let Act::Run = act {
                waiter.done.store(true, Ordering::Release);
            }
        }
        Self { head: core::cell::UnsafeCell::new(Head::new(0, act)), done: AtomicBool::new(false) }
    }

    /// # Safety
    ///
    /// The callback is queued, and [`Waiter::wait`] called, before the waiter is dropped or moved.
    pub(super) unsafe fn callback(&self) -> Callback {
        let this = NonNull::from(self).cast::<Head>();
        // SAFETY: valid until consumed, as the caller promises; carries nothing.
        unsafe { Callback::from_head(this) }
    }

    pub(super) fn wait(&self, domain: &Domain) {
        domain.sleep_until(|| self.done.load(Ordering::Acquire));
    }
}
