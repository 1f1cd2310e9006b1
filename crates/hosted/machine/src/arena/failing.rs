//! Allocations that a test has fail.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Which allocations are to fail.
#[derive(Debug, Default)]
pub(super) struct Failing {
    armed: AtomicBool,
    first: AtomicU64,
    end: AtomicU64,
    count: AtomicU64,
}

impl Failing {
    /// Has those fail, of the allocations from now on, that have these numbers; none, if the range is empty.
    pub(super) fn arm(&self, numbers: &Range<u64>) {
        self.armed.store(false, Ordering::Relaxed);
        self.first.store(numbers.start, Ordering::Relaxed);
        self.end.store(numbers.end, Ordering::Relaxed);
        self.count.store(0, Ordering::Relaxed);
        self.armed.store(!numbers.is_empty(), Ordering::Release);
    }

    /// Counts an allocation, and tells whether it is to fail.
    pub(super) fn next(&self) -> bool {
        if !self.armed.load(Ordering::Acquire) {
            return false;
        }
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        (self.first.load(Ordering::Relaxed)..self.end.load(Ordering::Relaxed)).contains(&number)
    }
}
