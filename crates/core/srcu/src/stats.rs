//! What a domain has done.

use mayfly_platform::sync::{AtomicU64, Ordering};

/// Counts of a domain since it was built. Each is exact; together they are no snapshot of one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Grace periods that were started.
    pub grace_periods: u64,
    /// Barriers that the platform passed on behalf of every CPU. On a platform that reaches a CPU by interrupting it,
    /// so often was every CPU interrupted that could have been running a reader, and its guest brought out: once a
    /// grace period while there is a reader, and once whenever a thread goes to sleep for readers that no thread sleeps
    /// for yet.
    pub heavy_barriers: u64,
    /// Times that a thread went to sleep for a grace period.
    pub sleeps: u64,
    /// Callbacks that have run.
    pub callbacks: u64,
    /// Callbacks that came when the hard bound was reached.
    pub calls_at_bound: u64,
    /// Callbacks deferred now and not yet run.
    pub deferred: usize,
    /// The memory that those will give back, in bytes.
    pub deferred_bytes: usize,
    /// The most callbacks that were deferred at a time.
    pub peak_deferred: usize,
    /// The most memory that was deferred at a time, in bytes.
    pub peak_deferred_bytes: usize,
}

/// What is counted as it happens, and decides nothing.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) heavy_barriers: AtomicU64,
    pub(crate) sleeps: AtomicU64,
    pub(crate) callbacks: AtomicU64,
    pub(crate) refused: AtomicU64,
}

impl Counters {
    pub(crate) fn read(&self) -> Stats {
        Stats {
            heavy_barriers: self.heavy_barriers.load(Ordering::Relaxed),
            sleeps: self.sleeps.load(Ordering::Relaxed),
            callbacks: self.callbacks.load(Ordering::Relaxed),
            calls_at_bound: self.refused.load(Ordering::Relaxed),
            ..Stats::default()
        }
    }
}
