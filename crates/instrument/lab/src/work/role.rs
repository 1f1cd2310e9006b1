//! What a thread is there for.

use crate::experiment::Metric;

/// What a thread is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadRole {
    /// Makes the calls that are timed.
    Caller,
    /// Runs a vCPU, its guest included.
    Vcpu,
    /// Runs grace periods, and what was deferred until they are over.
    Worker,
    /// Frees tables.
    Reclaimer,
    /// Merges equal pages.
    Merger,
}

/// The CPU time of all roles together.
pub(crate) const TOTAL: &str = "cpu_all";

/// What is measured of every experiment: [`ThreadRole::cpu`] of each role, in their order, and [`TOTAL`].
pub(crate) static METRICS: [Metric; 6] = [
    Metric {
        name: "cpu_caller",
        summary: "CPU time, in a round, of the thread that makes the calls",
    },
    Metric { name: "cpu_vcpus", summary: "of the vCPUs' threads, their guests included" },
    Metric { name: "cpu_worker", summary: "of the thread that runs what was deferred" },
    Metric { name: "cpu_reclaimer", summary: "of the thread that frees tables" },
    Metric { name: "cpu_merger", summary: "of the thread that merges pages" },
    Metric {
        name: TOTAL,
        summary: "CPU time, in a round, of all of these: less of it is less work",
    },
];

impl ThreadRole {
    pub(crate) const ALL: [Self; 5] =
        [Self::Caller, Self::Vcpu, Self::Worker, Self::Reclaimer, Self::Merger];

    /// The name of the metric that its CPU time is.
    pub(crate) const fn cpu(self) -> &'static str {
        METRICS[self as usize].name
    }

    /// What its threads are called together.
    pub(crate) fn name(self) -> &'static str {
        self.cpu().trim_start_matches("cpu_")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_role_has_its_metric_and_the_total_is_none() {
        let names = ThreadRole::ALL.map(ThreadRole::name);
        assert_eq!(names, ["caller", "vcpus", "worker", "reclaimer", "merger"]);
        assert!(ThreadRole::ALL.iter().all(|role| role.cpu() != TOTAL));
    }
}
