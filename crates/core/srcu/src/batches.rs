//! Deferred callbacks, in batches that each wait for one grace period.
//!
//! Batches queue in the order of their numbers, under the gate. A batch is ready once its number is complete. If grace
//! periods are far apart, the stack of arrivals is gathered before, a part at a time. Gathering reverses the stack and
//! so goes through all its nodes, which is quick while they are still in the cache.

use core::mem::ManuallyDrop;
use core::ptr::null_mut;

use crate::backlog::Backlog;
use crate::callback::{Chain, Head};

/// Batches in order of the grace period that each waits for. Under the gate.
pub(crate) struct Batches {
    first: *mut Head,
    last: *mut Head,
    /// The first and the last node of what the next batch begins with.
    gathered: (*mut Head, *mut Head),
}

// SAFETY: the nodes are callbacks, which are `Send`, and the queue is their only owner.
unsafe impl Send for Batches {}

impl Batches {
    pub(crate) fn new() -> Self {
        Self { first: null_mut(), last: null_mut(), gathered: (null_mut(), null_mut()) }
    }

    /// Has everything that has arrived be in the next batch.
    pub(crate) fn gather(&mut self, backlog: &Backlog) {
        let arrived = backlog.take_arrivals();
        let last = arrived.first();
        if last.is_null() {
            return;
        }
        let first = ManuallyDrop::new(arrived.reversed()).first();
        let (gathered, before) = self.gathered;
        self.gathered = if gathered.is_null() {
            (first, last)
        } else {
            // SAFETY: `before` is the last node of a chain that is ours.
            unsafe { (*before).next = first };
            (gathered, last)
        };
    }

    /// Whether something is gathered for the next batch.
    pub(crate) fn has_gathered(&self) -> bool {
        !self.gathered.0.is_null()
    }

    /// Makes everything that has arrived the batch of `period`, which is later than those of the batches before.
    pub(crate) fn collect(&mut self, backlog: &Backlog, period: u64) {
        self.gather(backlog);
        let (head, _) = core::mem::replace(&mut self.gathered, (null_mut(), null_mut()));
        if head.is_null() {
            return;
        }
        // SAFETY: `head` is the first of a chain that is ours; `last`, if any, is the first node of a batch we hold.
        unsafe {
            (*head).period = period;
            (*head).next_batch = null_mut();
            if self.last.is_null() {
                self.first = head;
            } else {
                (*self.last).next_batch = head;
            }
        }
        self.last = head;
    }

    /// The grace period that the latest batch waits for.
    pub(crate) fn latest(&self) -> Option<u64> {
        // SAFETY: `last` is null or the first node of a batch we hold.
        unsafe { self.last.as_ref() }.map(|head| head.period)
    }

    /// Whether a batch's grace period is among the `completed`.
    pub(crate) fn has_ready(&self, completed: u64) -> bool {
        // SAFETY: `first` is null or the first node of a batch we hold.
        unsafe { self.first.as_ref() }.is_some_and(|head| head.period <= completed)
    }

    /// Takes out the oldest batch, or its first `most` callbacks, if its grace period is among the `completed`. Returns
    /// how many that are, and the bytes that they will give back.
    pub(crate) fn take_ready(&mut self, completed: u64, most: usize) -> Option<Taken> {
        if most == 0 || !self.has_ready(completed) {
            return None;
        }
        let batch = self.first;
        let (mut count, mut bytes, mut last) = (0, 0, batch);
        let mut at = batch;
        // SAFETY: `batch` is the first node of a batch we hold, and `next` leads through its nodes.
        let (period, next_batch) = unsafe {
            while count < most && !at.is_null() {
                count += 1;
                bytes += (*at).bytes;
                last = at;
                at = (*at).next;
            }
            (*last).next = null_mut();
            ((*batch).period, (*batch).next_batch)
        };
        if at.is_null() {
            self.first = next_batch;
        } else {
            // SAFETY: what is left of the batch is ours, and `at` its first node.
            unsafe { ((*at).period, (*at).next_batch) = (period, next_batch) };
            self.first = at;
        }
        if self.last == batch {
            self.last = at;
        }
        // SAFETY: the nodes up to `last` were given up by the thread that deferred them, and leave the queue here.
        Some(Taken { callbacks: unsafe { Chain::from_raw(batch) }, count, bytes })
    }
}

/// Callbacks taken out to be run.
pub(crate) struct Taken {
    pub(crate) callbacks: Chain,
    pub(crate) count: usize,
    pub(crate) bytes: usize,
}

#[cfg(all(test, not(any(mayfly_loom, mayfly_shuttle))))]
mod tests {
    use super::*;
    use crate::Limits;
    use crate::callback::Callback;
    use alloc::sync::Arc;
    use std::sync::Mutex;
    use std::vec::Vec;

    #[test]
    fn batches_come_out_in_pieces_in_order_and_whole_however_they_were_gathered() {
        let backlog = Backlog::new(Limits::default(), 64);
        let mut batches = Batches::new();
        let ran = Arc::new(Mutex::new(Vec::new()));
        for period in 1..=2 {
            for number in 0..5 {
                let ran = Arc::clone(&ran);
                let note = move || ran.lock().unwrap().push((period, number));
                backlog.push(Callback::try_new(note).unwrap());
                if number % 2 == 1 {
                    batches.gather(&backlog);
                }
            }
            batches.collect(&backlog, period);
        }
        let mut pieces = Vec::new();
        let mut take = |batches: &mut Batches, completed| {
            let taken = batches.take_ready(completed, 3)?;
            taken.callbacks.for_each(Callback::run);
            pieces.push(taken.count);
            Some(())
        };
        while take(&mut batches, 1).is_some() {}
        assert_eq!(batches.latest(), Some(2));
        while take(&mut batches, 2).is_some() {}
        assert_eq!(batches.latest(), None);
        assert!(batches.take_ready(2, 0).is_none());
        assert_eq!(pieces, [3, 2, 3, 2]);
        let expected: Vec<_> =
            (1..=2).flat_map(|period| (0..5).map(move |n| (period, n))).collect();
        assert_eq!(*ran.lock().unwrap(), expected);
    }
}
