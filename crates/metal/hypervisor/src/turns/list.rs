//! A list of shares, linked through them, in no order: there are few.

use core::ptr::null_mut;

use super::is_before;
use super::share::Share;

/// Shares with a thread that waits. A share is on one list at most.
#[derive(Debug)]
pub(super) struct List {
    first: *mut Share,
}

impl List {
    pub(super) const fn new() -> Self {
        Self { first: null_mut() }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// Adds a share.
    ///
    /// # Safety
    ///
    /// It is on no list, and stays until it is removed.
    #[inline]
    pub(super) unsafe fn push(&mut self, share: *mut Share) {
        // SAFETY: the caller's promise.
        unsafe { (*share).next = self.first };
        self.first = share;
    }

    /// The share whose virtual time is least, and the one before it on the list, or null.
    ///
    /// # Safety
    ///
    /// The list is not empty.
    #[inline(always)]
    pub(super) unsafe fn least(&self) -> (*mut Share, *mut Share) {
        let (mut before_best, mut best) = (null_mut(), self.first);
        // SAFETY: shares on the list are there.
        unsafe {
            let (mut before, mut at) = (best, (*best).next);
            while !at.is_null() {
                if is_before((*at).virtual_time, (*best).virtual_time) {
                    (before_best, best) = (before, at);
                }
                (before, at) = (at, (*at).next);
            }
        }
        (before_best, best)
    }

    /// Removes a share.
    ///
    /// # Safety
    ///
    /// It is on the list behind `before`, or the first if that is null.
    #[inline]
    pub(super) unsafe fn remove(&mut self, before: *mut Share, share: *mut Share) {
        // SAFETY: the caller's promise.
        unsafe {
            if before.is_null() {
                self.first = (*share).next;
            } else {
                (*before).next = (*share).next;
            }
        }
    }

    /// Takes the first.
    pub(super) fn pop(&mut self) -> Option<*mut Share> {
        let share = self.first;
        if share.is_null() {
            return None;
        }
        // SAFETY: as above.
        self.first = unsafe { (*share).next };
        Some(share)
    }
}
