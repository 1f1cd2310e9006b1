//! What a domain has done.

/// Counts of a domain since it was built. Each is exact; together they are no snapshot of one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Grace periods that were started.
    pub grace_periods: u64,
    /// Barriers that the platform passed on behalf of every CPU.
    pub heavy_barriers: u64,
    /// Times that somebody went to sleep for a grace period.
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
