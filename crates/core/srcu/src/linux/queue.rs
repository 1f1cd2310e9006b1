//! The callbacks of a domain that is paced as Linux.

use crate::batches::Taken;
use crate::callback::{Callback, Chain, Head};

/// Callbacks in order of arrival, each with its sequence number.
pub(super) struct Queue {
    first: *mut Head,
    last: *mut Head,
}

// SAFETY: the nodes are callbacks, which are `Send`, and the queue is their only owner.
unsafe impl Send for Queue {}

impl Queue {
    pub(super) fn new() -> Self {
        Self { first: core::ptr::null_mut(), last: core::ptr::null_mut() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    pub(super) fn push(&mut self, callback: Callback, seq: u64) {
        let head = callback.into_head().as_ptr();
        // SAFETY: the node was given up to us; `last`, if any, is a node of the queue.
        unsafe {
            (*head).next = core::ptr::null_mut();
            (*head).period = seq;
            if self.last.is_null() {
                self.first = head;
            } else {
                (*self.last).next = head;
            }
        }
        self.last = head;
    }

    pub(super) fn first_seq(&self) -> Option<u64> {
        // SAFETY: null or a node of the queue.
        unsafe { self.first.as_ref() }.map(|head| head.period)
    }

    pub(super) fn last_seq(&self) -> Option<u64> {
        // SAFETY: null or a node of the queue.
        unsafe { self.last.as_ref() }.map(|head| head.period)
    }

    /// Takes out the callbacks that wait for `seq` or less.
    pub(super) fn take_until(&mut self, seq: u64) -> Taken {
        let (mut count, mut bytes, mut last_taken) = (0, 0, core::ptr::null_mut::<Head>());
        let mut at = self.first;
        // SAFETY: null or a node of the queue, as all that `next` leads to.
        while let Some(head) = unsafe { at.as_ref() }.filter(|head| head.period <= seq) {
            count += 1;
            bytes += head.bytes;
            last_taken = at;
            at = head.next;
        }
        let mut taken = core::ptr::null_mut();
        // SAFETY: null or a node of the queue, which is cut behind it.
        if let Some(last) = unsafe { last_taken.as_mut() } {
            last.next = core::ptr::null_mut();
            taken = core::mem::replace(&mut self.first, at);
            if self.first.is_null() {
                self.last = core::ptr::null_mut();
            }
        }
        // SAFETY: the nodes up to the cut leave the queue here.
        Taken { callbacks: unsafe { Chain::from_raw(taken) }, count, bytes }
    }
}
