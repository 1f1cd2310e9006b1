//! What is counted of the machine's VMs, and what of it goes into their row.

use mayfly_record::ResultRow;
use mayfly_srcu::Stats;

/// What was counted over all VMs.
#[derive(Default)]
pub(super) struct Counted {
    grace_periods: u64,
    heavy_barriers: u64,
    sleeps: u64,
    peak_deferred: usize,
    peak_deferred_bytes: usize,
    pub(super) missed: u64,
    pub(super) doorbells: u64,
}

impl Counted {
    pub(super) fn note(&mut self, stats: Stats) {
        self.grace_periods += stats.grace_periods;
        self.heavy_barriers += stats.heavy_barriers;
        self.sleeps += stats.sleeps;
        self.peak_deferred = self.peak_deferred.max(stats.peak_deferred);
        self.peak_deferred_bytes = self.peak_deferred_bytes.max(stats.peak_deferred_bytes);
    }

    pub(super) fn report(&self, row: ResultRow) -> ResultRow {
        let Self { missed, doorbells, .. } = *self;
        row.counter("grace_periods", self.grace_periods)
            .counter("heavy_barriers", self.heavy_barriers)
            .counter("sleeps", self.sleeps)
            .counter("peak_deferred", self.peak_deferred as u64)
            .counter("peak_deferred_bytes", self.peak_deferred_bytes as u64)
            .check(
                "device_found",
                missed == 0,
                format!("{missed} vCPUs missed a registered device; {doorbells} VMs checked"),
            )
    }
}
