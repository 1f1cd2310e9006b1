//! What is measured, and what of it is the scheduler's where vCPUs are more than processors.

use mayfly_record::ResultRow;

use crate::experiment::Metric;

pub(super) const ROOT_LOAD: &str = "root_load";
pub(super) const ROOT_LOAD_WAIT: &str = "root_load_wait";
pub(super) const ROOT_LOAD_AHEAD: &str = "root_load_ahead";
pub(super) const ROOT_LOAD_CPU: &str = "root_load_cpu";
pub(super) const DELETE: &str = "delete";
pub(super) const CREATE: &str = "create";
pub(super) const ZAP_SLICE: &str = "zap_slice";
pub(super) const GUEST_STALL: &str = "guest_stall";

pub(super) static METRICS: [Metric; 8] = [
    Metric { name: ROOT_LOAD, summary: "from seeing the request to running on the new root" },
    Metric { name: ROOT_LOAD_WAIT, summary: "of that, asleep until others were done" },
    Metric {
        name: ROOT_LOAD_AHEAD,
        summary: "who had the lock or queued for it when a root load came, both times",
    },
    Metric { name: ROOT_LOAD_CPU, summary: "what a root load took of its processor" },
    Metric { name: DELETE, summary: "deleting the slot, until no vCPU uses its memory" },
    Metric { name: CREATE, summary: "creating it again" },
    Metric {
        name: ZAP_SLICE,
        summary: "a zap's time of its processor between two chances to stop",
    },
    Metric { name: GUEST_STALL, summary: "a guest's longest time without an access, in a round" },
];

/// Whether the time on the clock is what is measured: each vCPU has a processor, and so have whoever deletes the slot and
/// the worker. With one less it is the scheduler's as well.
pub(super) fn has_clock(vcpus: u32, cpus: usize) -> bool {
    cpus >= vcpus as usize + 2
}

/// Says of what is measured on the clock that it is not to be set in relation.
pub(super) fn uncompared(row: ResultRow) -> ResultRow {
    [ROOT_LOAD, ROOT_LOAD_WAIT, DELETE, CREATE, GUEST_STALL].into_iter().fold(row, |row, name| {
        if row.metrics.contains_key(name) { row.uncompared(name) } else { row }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_counts_where_there_is_a_processor_for_each_thread() {
        for (vcpus, cpus, counts) in [(4, 6, true), (4, 5, false), (1, 2, false), (128, 130, true)]
        {
            assert_eq!(has_clock(vcpus, cpus), counts, "{vcpus} vCPUs on {cpus} CPUs");
        }
    }
}
