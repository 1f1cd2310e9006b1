//! What is deferred: from `call` until it has run, counted against the domain's bounds.
//!
//! Callbacks arrive on a lock-free stack, so `call` waits for nobody. A grace period that starts takes the stack as a
//! batch of its own number; batches queue in order of number, under the gate, and are ready once that number is
//! complete.

use core::ptr::{NonNull, null_mut};

use mayfly_platform::sync::{AtomicPtr, AtomicUsize, CacheLine, Ordering};

use crate::Limits;
use crate::callback::{Callback, Chain, Head};

pub(crate) struct Backlog {
    arrived: CacheLine<AtomicPtr<Head>>,
    held: CacheLine<Held>,
    limits: Limits,
}

struct Held {
    count: AtomicUsize,
    bytes: AtomicUsize,
    peak_count: AtomicUsize,
    peak_bytes: AtomicUsize,
}

/// What [`Backlog::admit`] says of a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// There is room; whether it is the only one deferred.
    Admitted { first: bool },
    /// There is room, and the grace period should be hurried.
    Hurry,
    /// There is no room.
    Refused,
}

/// Past the soft bound, one `call` in this many looks at the readers, so that a parked reader does not turn each `call`
/// into a scan.
const HURRY_EVERY: usize = 64;

impl Backlog {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            arrived: CacheLine(AtomicPtr::new(null_mut())),
            held: CacheLine(Held {
                count: AtomicUsize::new(0),
                bytes: AtomicUsize::new(0),
                peak_count: AtomicUsize::new(0),
                peak_bytes: AtomicUsize::new(0),
            }),
            limits,
        }
    }

    /// Callbacks deferred and not yet run.
    pub(crate) fn count(&self) -> usize {
        self.held.count.load(Ordering::Acquire)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.held.bytes.load(Ordering::Relaxed)
    }

    /// The most that was ever deferred at a time: callbacks, bytes.
    pub(crate) fn peak(&self) -> (usize, usize) {
        (self.held.peak_count.load(Ordering::Relaxed), self.held.peak_bytes.load(Ordering::Relaxed))
    }

    /// Counts a callback of `bytes`, unless that would be more than the hard bounds allow.
    pub(crate) fn admit(&self, bytes: usize) -> Admission {
        let Limits { hard_count, hard_bytes, .. } = self.limits;
        let Some(total) = add_within(&self.held.bytes, bytes, hard_bytes) else {
            return Admission::Refused;
        };
        let Some(count) = add_within(&self.held.count, 1, hard_count) else {
            self.held.bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Admission::Refused;
        };
        self.note_peak(count, total);
        let over = count > self.limits.soft_count || total > self.limits.soft_bytes;
        if over && count.is_multiple_of(HURRY_EVERY) {
            Admission::Hurry
        } else {
            Admission::Admitted { first: count == 1 }
        }
    }

    /// Counts a callback of `bytes` where there are no bounds.
    pub(crate) fn add_unbounded(&self, bytes: usize) {
        let total = self.held.bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let count = self.held.count.fetch_add(1, Ordering::AcqRel) + 1;
        self.note_peak(count, total);
    }

    /// Uncounts callbacks that have run.
    pub(crate) fn remove(&self, count: usize, bytes: usize) {
        self.held.bytes.fetch_sub(bytes, Ordering::Relaxed);
        // Release: whoever sees the count fall to zero sees what the callbacks did.
        self.held.count.fetch_sub(count, Ordering::Release);
    }

    /// Takes an admitted callback.
    pub(crate) fn push(&self, callback: Callback) {
        let mut head = callback.into_head();
        let mut first = self.arrived.load(Ordering::Relaxed);
        loop {
            // SAFETY: the node was given up to us and is on no chain yet.
            unsafe { head.as_mut().next = first };
            // Release, so that `Batches::collect` acquires the node and all that was published before the call;
            // acquire, so that whoever comes too late for a batch knows that its grace period has started (see
            // `Domain::snapshot`).
            match self.arrived.compare_exchange(
                first,
                head.as_ptr(),
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    /// Whether something has arrived that is in no batch.
    pub(crate) fn has_arrivals(&self) -> bool {
        !self.arrived.load(Ordering::Relaxed).is_null()
    }

    /// Takes everything that has arrived.
    pub(crate) fn take_arrivals(&self) -> Chain {
        // SAFETY: the stack holds valid nodes given up in `push`, and they leave it here.
        unsafe { Chain::from_raw(self.arrived.swap(null_mut(), Ordering::AcqRel)) }
    }

    fn note_peak(&self, count: usize, bytes: usize) {
        let held = &self.held;
        if count > held.peak_count.load(Ordering::Relaxed) {
            held.peak_count.fetch_max(count, Ordering::Relaxed);
        }
        if bytes > held.peak_bytes.load(Ordering::Relaxed) {
            held.peak_bytes.fetch_max(bytes, Ordering::Relaxed);
        }
    }
}

/// Adds `more` to a count if that makes it no greater than `bound`, and returns what it is then. Otherwise the count is
/// not touched, so nobody finds it above the bound, or finds a place taken that is not.
fn add_within(count: &AtomicUsize, more: usize, bound: usize) -> Option<usize> {
    let add = |count: usize| count.checked_add(more).filter(|&sum| sum <= bound);
    count.fetch_update(Ordering::AcqRel, Ordering::Relaxed, add).ok().map(|before| before + more)
}

/// Batches in order of the grace period that each waits for. Under the gate.
pub(crate) struct Batches {
    first: *mut Head,
    last: *mut Head,
}

// SAFETY: the nodes are callbacks, which are `Send`, and the queue is their only owner.
unsafe impl Send for Batches {}

impl Batches {
    pub(crate) fn new() -> Self {
        Self { first: null_mut(), last: null_mut() }
    }

    /// Makes everything that has arrived the batch of `period`, which is later than those of the batches before.
    pub(crate) fn collect(&mut self, backlog: &Backlog, period: u64) {
        let chain = core::mem::ManuallyDrop::new(backlog.take_arrivals().reversed());
        let Some(callback) = NonNull::new(chain.first()) else { return };
        let head = callback.as_ptr();
        // SAFETY: `head` is the first of a chain that is ours now; `last`, if any, is the first node of a batch we
        // hold.
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

    /// Takes the oldest batch out if its grace period is among the `completed`.
    pub(crate) fn take_ready(&mut self, completed: u64) -> Option<Chain> {
        // SAFETY: `first` is null or the first node of a batch we hold.
        let head = unsafe { self.first.as_ref() }?;
        if head.period > completed {
            return None;
        }
        let batch = self.first;
        self.first = head.next_batch;
        if self.first.is_null() {
            self.last = null_mut();
        }
        // SAFETY: the batch's nodes were given up by whoever deferred them, and leave the queue here.
        Some(unsafe { Chain::from_raw(batch) })
    }
}
