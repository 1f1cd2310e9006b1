//! How long a thread may wait for a processor, and how long threads have waited.
//!
//! A thread waits until each other thread of its share has had a slice and its credit. All of this is time of its share,
//! which has its part of the processors, by its weight, or by its cap. So the bound for a thread is three slices for
//! each thread of its share, divided by that part, and three slices more.

use super::share::Share;
use super::{PERIOD, SLICE};

/// How long threads may wait, and have waited.
#[derive(Debug)]
pub struct Patience {
    processors: u64,
    /// Of all shares together: now, and at most.
    weights: u64,
    most_weights: u64,
    /// The longest wait, in hundredths of its bound.
    longest: u64,
}

impl Patience {
    pub(super) const fn new() -> Self {
        Self { processors: 1, weights: 0, most_weights: 1, longest: 0 }
    }

    /// So many processors take threads.
    pub fn set_processors(&mut self, processors: u64) {
        self.processors = processors.max(1);
    }

    /// There is another share.
    pub fn add(&mut self, share: &Share) {
        self.weights += u64::from(share.weight());
        self.most_weights = self.most_weights.max(self.weights);
    }

    /// There is a share less.
    pub fn remove(&mut self, share: &Share) {
        self.weights -= u64::from(share.weight());
    }

    /// The longest wait, in hundredths of its bound.
    pub fn longest(&self) -> u64 {
        self.longest
    }

    /// A thread of `share` has waited as long as none before it.
    #[cold]
    pub(super) fn note(&mut self, share: &Share) {
        let slices = SLICE * 3;
        let by_weight = slices * share.most_threads() * self.most_weights
            / (u64::from(share.weight()) * self.processors);
        let by_cap = share.cap().map_or(0, |percent| {
            slices * share.most_threads() * 100 / u64::from(percent) + PERIOD * 2
        });
        let bound = share.in_ticks(by_weight.max(by_cap) + slices);
        self.longest = self.longest.max((share.longest_wait() * 100).div_ceil(bound));
    }
}
