//! What has happened, and whether that is enough.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What a storm counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Registered,
    Unregistered,
    SlotCreated,
    SlotDeleted,
    SlotMoved,
    LogSwitched,
    /// A vCPU came out because it was kicked.
    Kicked,
    VcpuCreated,
    /// A guest's access reached a device.
    DeviceCalled,
    /// A guest's access reached neither a device nor memory.
    Exited,
    /// A guest found in memory what belongs there.
    WordVerified,
    /// A VM was created, run and destroyed.
    VmLived,
}

/// Counts, each with a quota.
pub(crate) struct Tally {
    counts: Vec<(What, AtomicU64, u64)>,
    ended: AtomicBool,
}

impl Tally {
    /// With `quotas`, times `MAYFLY_STORM`.
    pub(crate) fn new(quotas: &[(What, u64)]) -> Self {
        let factor = std::env::var("MAYFLY_STORM")
            .map_or(1, |factor| factor.parse().expect("MAYFLY_STORM is a number"));
        let count = |&(what, quota)| (what, AtomicU64::new(0), quota * factor);
        Self { counts: quotas.iter().map(count).collect(), ended: AtomicBool::new(false) }
    }

    pub(crate) fn add(&self, what: What, count: u64) {
        let (_, counted, _) = self.counts.iter().find(|entry| entry.0 == what).expect("a quota");
        counted.fetch_add(count, Ordering::Relaxed);
    }

    /// Whether every quota is met.
    pub(crate) fn is_met(&self) -> bool {
        self.counts.iter().all(|(_, count, quota)| count.load(Ordering::Relaxed) >= *quota)
    }

    /// What has not happened often enough yet, and how often it has.
    pub(crate) fn unmet(&self) -> Vec<(What, u64)> {
        let counts = self
            .counts
            .iter()
            .map(|(what, count, quota)| (*what, count.load(Ordering::Relaxed), *quota));
        counts
            .filter(|(_, count, quota)| count < quota)
            .map(|(what, count, _)| (what, count))
            .collect()
    }

    /// Whether the threads are to end.
    pub(crate) fn is_over(&self) -> bool {
        self.ended.load(Ordering::Relaxed) || self.is_met()
    }

    /// Ends the storm before its time.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

impl fmt::Debug for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.counts.iter().map(|(what, count, quota)| (what, (count, quota)));
        f.debug_map().entries(counts).finish()
    }
}
