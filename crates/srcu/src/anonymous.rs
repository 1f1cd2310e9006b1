//! Readers without a record: a pair of counters that all of them share.
//!
//! A section counts in the counter that `index` names when it begins. Counts cannot tell an old section from a new one,
//! so a grace period that finds the current counter in use has the index flipped: from then on new sections count in
//! the other, and the old counter drains. While one drains there is no flip; grace periods that want one meanwhile
//! share the next. A section that read `index` before a flip and counts after it is found by the next sampling (its
//! fence came later than the flip's grace period, which it need not hold up), and the counter it used is drained before
//! it is flipped to again.

use core::fmt;

use mayfly_platform::sync::{AtomicBool, AtomicUsize, CacheLine, Ordering, fence};

use crate::{Section, Srcu};

pub(crate) struct Anonymous {
    /// Which counter a new section uses: 0 or 1. Written under the gate.
    index: AtomicUsize,
    inside: [CacheLine<AtomicUsize>; 2],
    /// Somebody sleeps until a counter is zero.
    awaited: AtomicBool,
}

/// Which grace periods wait for which counter; under the gate.
#[derive(Default)]
pub(crate) struct Draining {
    /// The first grace period that waits for the counter that is not in use.
    old: Option<u64>,
    /// The first grace period that waits for the counter in use.
    current: Option<u64>,
}

impl Anonymous {
    pub(crate) fn new() -> Self {
        Self {
            index: AtomicUsize::new(0),
            inside: [CacheLine(AtomicUsize::new(0)), CacheLine(AtomicUsize::new(0))],
            awaited: AtomicBool::new(false),
        }
    }

    fn enter(&self) -> usize {
        let index = self.index.load(Ordering::Relaxed);
        self.inside[index].fetch_add(1, Ordering::Relaxed);
        // [light], see the protocol; a full fence always.
        fence(Ordering::SeqCst);
        index
    }

    /// Returns whether somebody sleeps until this.
    fn leave(&self, index: usize) -> bool {
        // Release, pairing with the acquire in `count`.
        let last = self.inside[index].fetch_sub(1, Ordering::Release) == 1;
        // [light], see the protocol.
        fence(Ordering::SeqCst);
        last && self.awaited.load(Ordering::Relaxed) && self.awaited.swap(false, Ordering::Relaxed)
    }

    /// Whether no section is open. The caller executed a full fence before.
    pub(crate) fn is_empty(&self) -> bool {
        self.count(0) == 0 && self.count(1) == 0
    }

    fn count(&self, index: usize) -> usize {
        self.inside[index].load(Ordering::Acquire)
    }

    /// Asks whoever leaves a counter that a grace period waits for at zero to say so. Returns whether nobody had asked
    /// before.
    pub(crate) fn mark(&self, draining: &Draining) -> bool {
        let marks = (draining.old.is_some() || draining.current.is_some())
            && !self.awaited.load(Ordering::Relaxed);
        if marks {
            self.awaited.store(true, Ordering::Relaxed);
        }
        marks
    }

    /// Looks at both counters under the gate, after the barrier of grace period `sampling` if there is one, and returns
    /// the first grace period that has to wait for a section seen here.
    pub(crate) fn scan(&self, draining: &mut Draining, sampling: Option<u64>) -> Option<u64> {
        let index = self.index.load(Ordering::Relaxed);
        if self.count(1 - index) == 0 {
            draining.old = None;
        } else if let Some(period) = sampling {
            draining.old.get_or_insert(period);
        }
        if self.count(index) == 0 {
            draining.current = None;
        } else if let Some(period) = sampling {
            draining.current.get_or_insert(period);
        }
        if draining.old.is_none() && draining.current.is_some() && self.count(1 - index) == 0 {
            self.index.store(1 - index, Ordering::Relaxed);
            draining.old = draining.current.take();
        }
        match (draining.old, draining.current) {
            (Some(old), Some(current)) => Some(old.min(current)),
            (old, current) => old.or(current),
        }
    }
}

/// A read-side section without a [`Reader`](crate::Reader): see [`Srcu::read_lock`].
#[must_use = "the section ends when the guard is dropped"]
pub struct AnonymousGuard<'a> {
    domain: &'a Srcu,
    index: usize,
}

impl<'a> AnonymousGuard<'a> {
    pub(crate) fn enter(domain: &'a Srcu) -> Self {
        Self { domain, index: domain.anonymous().enter() }
    }
}

impl Drop for AnonymousGuard<'_> {
    fn drop(&mut self) {
        if self.domain.anonymous().leave(self.index) {
            self.domain.reader_left();
        }
    }
}

impl fmt::Debug for AnonymousGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnonymousGuard")
    }
}

// SAFETY: the section is counted from `enter` until the guard is dropped.
unsafe impl Section for AnonymousGuard<'_> {
    fn domain(&self) -> &Srcu {
        self.domain
    }
}
