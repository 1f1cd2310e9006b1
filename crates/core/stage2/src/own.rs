//! Which contexts have an invalidation under way, or a replacement of roots, or the sequence's lock, in debug builds: to
//! find a caller that would wait for the end of its own.
//!
//! This is a sieve, like the one by which `mayfly_srcu` finds callers that wait for themselves: it has room for a fixed
//! number at a time, and a context that finds no room is not remembered. An [`Invalidation`](crate::Invalidation) stays
//! with the thread that began it, and so does a [`Retiring`](crate::Retiring). So a context that is found here really
//! has one that has not ended, also where it has forgotten it. An invalidation that was
//! [left](crate::Invalidation::leave) may be ended by any thread, and is not here.

use core::sync::atomic::{AtomicU64, Ordering};

use mayfly_platform::Mmu;

/// So many are remembered at a time.
const ROOM: usize = if LOOKED_FOR { 32 } else { 0 };

/// Whether this build looks for them. (A model checker finds them by the deadlock.)
const LOOKED_FOR: bool = cfg!(debug_assertions) && !cfg!(any(mayfly_loom, mayfly_shuttle));

/// The contexts that have something under way. (These atomics synchronise nothing.)
pub(crate) struct Own([AtomicU64; ROOM]);

/// The place that one was given.
pub(crate) struct Entered(Option<usize>);

impl Own {
    pub(crate) fn new() -> Self {
        Self([const { AtomicU64::new(0) }; ROOM])
    }

    /// Remembers what runs here, until [`Own::leave`].
    pub(crate) fn enter(&self, mmu: &dyn Mmu) -> Entered {
        Entered(here(mmu).and_then(|here| {
            let relaxed = Ordering::Relaxed;
            let take = |place: &AtomicU64| place.compare_exchange(0, here, relaxed, relaxed);
            self.0.iter().position(|place| take(place).is_ok())
        }))
    }

    pub(crate) fn leave(&self, entered: &Entered) {
        if let Some(place) = entered.0.and_then(|place| self.0.get(place)) {
            place.store(0, Ordering::Relaxed);
        }
    }

    /// Whether what runs here has one under way.
    pub(crate) fn has(&self, mmu: &dyn Mmu) -> bool {
        let is_here = |here| self.0.iter().any(|place| place.load(Ordering::Relaxed) == here);
        here(mmu).is_some_and(is_here)
    }
}

fn here(mmu: &dyn Mmu) -> Option<u64> {
    if LOOKED_FOR { mmu.context().map(|context| context.get().get()) } else { None }
}
