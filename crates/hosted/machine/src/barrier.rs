//! A barrier between guests. Unlike a host's, a guest that waits at it is still in the guest, and comes out when it is
//! kicked.

use std::sync::atomic::{AtomicU64, Ordering};

/// A place where a number of vCPUs wait for each other, again and again.
#[derive(Debug)]
pub struct GuestBarrier {
    /// How many wait for each other.
    parties: u64,
    /// How many have arrived, in all rounds together.
    arrived: AtomicU64,
}

impl GuestBarrier {
    /// A barrier of `parties` vCPUs; one alone never waits, and 0 counts as 1.
    pub fn new(parties: u32) -> Self {
        Self { parties: u64::from(parties.max(1)), arrived: AtomicU64::new(0) }
    }

    /// Arrives. Returns how many must have arrived, in all, for this round to be over.
    pub(crate) fn arrive(&self) -> u64 {
        let before = self.arrived.fetch_add(1, Ordering::AcqRel);
        (before / self.parties + 1) * self.parties
    }

    /// Whether so many have arrived.
    pub(crate) fn is_over(&self, awaited: u64) -> bool {
        self.arrived.load(Ordering::Acquire) >= awaited
    }
}
