//! The threads of a share that wait, in the order in which they are taken.

use core::ptr::null_mut;

use super::is_before;
use super::share::Share;

/// A thread, as the scheduler sees it.
#[derive(Debug)]
pub struct Turn {
    pub(super) next: *mut Turn,
    pub(super) share: *mut Share,
    /// The processor time that it has had, in ticks, or what counts as that.
    pub(super) used: u64,
    /// Since when it runs or waits, in ticks.
    pub(super) began: u64,
    /// What it was charged for in advance, in ticks.
    pub(super) granted: u64,
    /// Whether it works [in the background](Turn::in_background).
    pub(super) is_background: bool,
}

impl Turn {
    /// A thread of `share`.
    pub const fn new(share: *mut Share) -> Self {
        Self { next: null_mut(), share, used: 0, began: 0, granted: 0, is_background: false }
    }

    /// From now on it works in the background: nobody waits for what it does. When it wakes, it has no credit beside the other
    /// threads of its share, but as much of a debt.
    pub fn in_background(&mut self) {
        self.is_background = true;
    }

    /// What it has used, without the debt with which a thread in the background begins: the others of its share are not to be
    /// behind for that.
    #[inline]
    pub(super) fn without_debt(&self, debt: u64) -> u64 {
        if self.is_background { self.used.wrapping_sub(debt) } else { self.used }
    }

    /// Its share.
    pub fn share(&self) -> *mut Share {
        self.share
    }

    /// Since when it runs or waits, in ticks.
    #[inline]
    pub fn began(&self) -> u64 {
        self.began
    }

    /// When its slice ends, while it runs, in ticks.
    #[inline]
    pub fn end(&self) -> u64 {
        self.began.wrapping_add(self.granted)
    }
}

/// Threads that wait, the one that has used least first.
#[derive(Debug)]
pub(super) struct Queue {
    first: *mut Turn,
    last: *mut Turn,
}

impl Queue {
    pub(super) const fn new() -> Self {
        Self { first: null_mut(), last: null_mut() }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// Puts a thread behind those that have used no more than it.
    ///
    /// # Safety
    ///
    /// It is on no queue, and stays until it is taken.
    #[inline]
    pub(super) unsafe fn insert(&mut self, turn: *mut Turn) {
        // SAFETY: the caller's promise, for this one and for those before it.
        unsafe {
            (*turn).next = null_mut();
            if self.first.is_null() {
                self.first = turn;
                self.last = turn;
            } else if is_before((*turn).used, (*self.last).used) {
                self.insert_between(turn);
            } else {
                (*self.last).next = turn;
                self.last = turn;
            }
        }
    }

    /// As [`Queue::insert`], where it does not come last.
    unsafe fn insert_between(&mut self, turn: *mut Turn) {
        // SAFETY: as above; the walk ends before the last.
        unsafe {
            let mut at = &raw mut self.first;
            while !is_before((*turn).used, (**at).used) {
                at = &raw mut (**at).next;
            }
            (*turn).next = *at;
            *at = turn;
        }
    }

    /// Takes the first; there is one.
    ///
    /// # Safety
    ///
    /// The queue is not empty.
    #[inline]
    pub(super) unsafe fn pop(&mut self) -> *mut Turn {
        let turn = self.first;
        // SAFETY: it is there, as `insert` was promised.
        self.first = unsafe { (*turn).next };
        turn
    }
}
