//! A queue of threads, linked through them.

use core::ptr::null_mut;

use super::thread::Thread;

/// Threads in the order in which they came. A thread is on one queue at most.
pub(crate) struct Queue {
    first: *mut Thread,
    last: *mut Thread,
    count: u64,
}

impl Queue {
    pub(crate) const fn new() -> Self {
        Self { first: null_mut(), last: null_mut(), count: 0 }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Puts a thread at the end.
    pub(crate) fn push(&mut self, thread: *mut Thread) {
        // SAFETY: threads on queues are there, and their links are the queue's.
        unsafe {
            (*thread).next = null_mut();
            if self.last.is_null() {
                self.first = thread;
            } else {
                (*self.last).next = thread;
            }
        }
        self.last = thread;
        self.count += 1;
    }

    /// Takes the first.
    pub(crate) fn pop(&mut self) -> Option<*mut Thread> {
        self.take(|_| true)
    }

    /// Takes the first that is `wanted`.
    pub(crate) fn take(&mut self, wanted: impl Fn(&Thread) -> bool) -> Option<*mut Thread> {
        let (mut before, mut at) = (null_mut::<Thread>(), self.first);
        while !at.is_null() {
            // SAFETY: as above.
            unsafe {
                if wanted(&*at) {
                    if before.is_null() {
                        self.first = (*at).next;
                    } else {
                        (*before).next = (*at).next;
                    }
                    if self.last == at {
                        self.last = before;
                    }
                    self.count -= 1;
                    return Some(at);
                }
                (before, at) = (at, (*at).next);
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
