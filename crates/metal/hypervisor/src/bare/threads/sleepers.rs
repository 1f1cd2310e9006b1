//! The threads that sleep, linked through them.

use core::ptr::null_mut;

use super::thread::Thread;

/// Threads that sleep. A thread sleeps or waits for a processor, not both.
pub(crate) struct Sleepers {
    first: *mut Thread,
}

impl Sleepers {
    pub(crate) const fn new() -> Self {
        Self { first: null_mut() }
    }

    /// Adds a thread.
    pub(crate) fn push(&mut self, thread: *mut Thread) {
        // SAFETY: threads that sleep are there, and their links are this list's.
        unsafe { (*thread).next = self.first };
        self.first = thread;
    }

    /// Takes one that is `wanted`.
    pub(crate) fn take(&mut self, wanted: impl Fn(&Thread) -> bool) -> Option<*mut Thread> {
        let mut at = &raw mut self.first;
        // SAFETY: as above.
        unsafe {
            while !(*at).is_null() {
                let thread = *at;
                if wanted(&*thread) {
                    *at = (*thread).next;
                    return Some(thread);
                }
                at = &raw mut (*thread).next;
            }
        }
        None
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Thread> {
        let mut at = self.first;
        core::iter::from_fn(move || {
            // SAFETY: as above.
            let thread = unsafe { at.as_ref() }?;
            at = thread.next;
            Some(thread)
        })
    }
}
