//! What is deferred: from `call` until it has run, counted against the domain's bounds.
//!
//! Callbacks arrive on a lock-free stack, so `call` waits for no other thread. A grace period that starts takes the
//! stack as a batch of its own number (`batches`).

use core::ptr::null_mut;

use mayfly_platform::sync::{AtomicPtr, AtomicU64, AtomicUsize, CacheLine, Ordering};

use crate::callback::{Callback, Chain, Head};
use crate::limits::Limits;

pub(crate) struct Backlog {
    arrived: CacheLine<AtomicPtr<Head>>,
    held: CacheLine<Held>,
    limits: Limits,
    /// Past the soft bound, one `call` in so many hurries, so that a parked reader does not turn each `call` into a
    /// scan: a power of two, less one.
    hurry_mask: usize,
}

struct Held {
    now: AtomicU64,
    peak_count: AtomicUsize,
    peak_bytes: AtomicUsize,
}

/// A number of callbacks and of bytes, in one word, so that both are counted in one step.
#[derive(Clone, Copy)]
struct Amount(u64);

/// Bits of an [`Amount`] that count bytes; the others count callbacks.
const BYTES: u32 = 40;

impl Amount {
    /// The most callbacks, and the most bytes (1 TiB), that can be counted.
    const MOST: (usize, usize) = ((1 << (u64::BITS - BYTES)) - 1, most_bytes());

    /// What is no more than [`Amount::MOST`].
    fn new(count: usize, bytes: usize) -> Self {
        Self((count as u64) << BYTES | bytes as u64)
    }

    fn count(self) -> usize {
        (self.0 >> BYTES) as usize
    }

    fn bytes(self) -> usize {
        (self.0 & ((1 << BYTES) - 1)) as usize
    }
}

const fn most_bytes() -> usize {
    if usize::BITS > BYTES { ((1_u64 << BYTES) - 1) as usize } else { usize::MAX }
}

/// What [`Backlog::admit`] says of a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// There is room; whether it is the only one deferred.
    Admitted { first: bool },
    /// There is room, and the grace period should be hurried; whether it is the only one deferred.
    Hurry { first: bool },
    /// There is no room.
    Refused,
}

/// Past the soft bound in bytes, one `call` for so large a part of it looks at the readers.
const HURRY_EVERY_PART: usize = 16;

impl Backlog {
    /// A thread that hurries runs `share` callbacks, at least one. Threads hurry no less often, so that the backlog
    /// does not grow; and at powers of two, for each `call` past the soft bound asks whether it is to hurry.
    pub(crate) fn new(limits: Limits, share: usize) -> Self {
        let (most_count, most_bytes) = Amount::MOST;
        let hard_count = limits.hard_count.min(most_count);
        let hard_bytes = limits.hard_bytes.min(most_bytes);
        Self {
            arrived: CacheLine(AtomicPtr::new(null_mut())),
            held: CacheLine(Held {
                now: AtomicU64::new(0),
                peak_count: AtomicUsize::new(0),
                peak_bytes: AtomicUsize::new(0),
            }),
            limits: Limits { hard_count, hard_bytes, ..limits },
            hurry_mask: (1 << share.ilog2()) - 1,
        }
    }

    /// Callbacks deferred and not yet run.
    pub(crate) fn count(&self) -> usize {
        Amount(self.held.now.load(Ordering::Acquire)).count()
    }

    pub(crate) fn bytes(&self) -> usize {
        Amount(self.held.now.load(Ordering::Relaxed)).bytes()
    }

    /// The most that was ever deferred at a time: callbacks, bytes.
    pub(crate) fn peak(&self) -> (usize, usize) {
        (self.held.peak_count.load(Ordering::Relaxed), self.held.peak_bytes.load(Ordering::Relaxed))
    }

    /// Counts a callback of `bytes`, unless that would be more than the hard bounds allow. (Otherwise the counts are
    /// not touched, so no thread finds them above the bound, or finds a place taken that is not.)
    pub(crate) fn admit(&self, bytes: usize) -> Admission {
        let Limits { hard_count, hard_bytes, .. } = self.limits;
        let Some((before, now)) = self.add(bytes, hard_count, hard_bytes) else {
            return Admission::Refused;
        };
        let first = before.count() == 0;
        if self.is_to_be_hurried(before, now) {
            Admission::Hurry { first }
        } else {
            Admission::Admitted { first }
        }
    }

    /// Counts a callback of `bytes` where there are no bounds.
    ///
    /// # Panics
    ///
    /// Where there are more than can be counted.
    pub(crate) fn add_unbounded(&self, bytes: usize) {
        let (most_count, most_bytes) = Amount::MOST;
        assert!(self.add(bytes, most_count, most_bytes).is_some(), "more is deferred than counts");
    }

    fn add(&self, bytes: usize, most_count: usize, most_bytes: usize) -> Option<(Amount, Amount)> {
        let mut before = Amount(self.held.now.load(Ordering::Relaxed));
        loop {
            let count = before.count() + 1;
            let bytes = before.bytes().checked_add(bytes)?;
            if count > most_count || bytes > most_bytes {
                return None;
            }
            let now = Amount::new(count, bytes);
            let added = self.held.now.compare_exchange_weak(
                before.0,
                now.0,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            match added {
                Ok(_) => {
                    self.note_peak(now);
                    return Some((before, now));
                }
                Err(other) => before = Amount(other),
            }
        }
    }

    fn is_to_be_hurried(&self, before: Amount, now: Amount) -> bool {
        let Limits { soft_count, soft_bytes, .. } = self.limits;
        let part = (soft_bytes / HURRY_EVERY_PART).max(1);
        (now.count() > soft_count && now.count() & self.hurry_mask == 0)
            || (now.bytes() > soft_bytes && before.bytes() / part != now.bytes() / part)
    }

    /// Uncounts callbacks that have run.
    pub(crate) fn remove(&self, count: usize, bytes: usize) {
        // Release: the thread that sees the count fall to zero sees what the callbacks did.
        self.held.now.fetch_sub(Amount::new(count, bytes).0, Ordering::Release);
    }

    /// Takes an admitted callback.
    pub(crate) fn push(&self, callback: Callback) {
        let mut head = callback.into_head();
        let mut first = self.arrived.load(Ordering::Relaxed);
        loop {
            // SAFETY: the node was given up to us and is on no chain yet.
            unsafe { head.as_mut().next = first };
            // Release, so that `Batches::collect` acquires the node and all that was published before the call;
            // acquire, so that the thread that comes too late for a batch knows that its grace period has started (see
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

    fn note_peak(&self, now: Amount) {
        let held = &self.held;
        if now.count() > held.peak_count.load(Ordering::Relaxed) {
            held.peak_count.fetch_max(now.count(), Ordering::Relaxed);
        }
        if now.bytes() > held.peak_bytes.load(Ordering::Relaxed) {
            held.peak_bytes.fetch_max(now.bytes(), Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(any(mayfly_loom, mayfly_shuttle))))]
mod tests {
    use super::*;

    fn limits(soft_bytes: usize) -> Limits {
        Limits { soft_count: 1 << 20, soft_bytes, hard_count: usize::MAX, hard_bytes: usize::MAX }
    }

    #[test]
    fn past_the_soft_bound_large_callbacks_hurry_each_and_small_ones_now_and_then() {
        let hurries = |bytes: usize| {
            let backlog = Backlog::new(limits(1 << 20), 64);
            let hurries = |_: &i32| matches!(backlog.admit(bytes), Admission::Hurry { .. });
            (0..256).filter(hurries).count()
        };
        assert_eq!(hurries(300 << 10), 256 - 3);
        assert_eq!(hurries(8 << 10), (256 - 128) / 8);
        assert_eq!(hurries(4 << 10), 0);
    }

    #[test]
    fn what_cannot_be_counted_is_refused() {
        let backlog = Backlog::new(limits(usize::MAX), 64);
        assert_eq!(backlog.admit(usize::MAX), Admission::Refused);
        assert_eq!(backlog.admit(Amount::MOST.1), Admission::Admitted { first: true });
        assert_eq!(backlog.admit(1), Admission::Refused);
        assert_eq!((backlog.count(), backlog.bytes()), (1, Amount::MOST.1));
        backlog.remove(1, Amount::MOST.1);
        assert_eq!(backlog.admit(1), Admission::Admitted { first: true });
    }
}
