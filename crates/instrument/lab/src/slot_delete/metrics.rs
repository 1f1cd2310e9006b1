//! What is measured, and what of it is the scheduler's where vCPUs are more than processors.

use mayfly_record::ResultRow;

use crate::experiment::Metric;

pub(super) const ROOT_LOAD: &str = "root_load";
pub(super) const ROOT_LOAD_WAIT: &str = "root_load_wait";
pub(super) const ROOT_LOAD_AHEAD: &str = "root_load_ahead";
pub(super) const ROOT_LOAD_CPU: &str = "root_load_cpu";
pub(super) const DELETE: &str = "delete";
pub(super) const DELETE_CPU: &str = "delete_cpu";
pub(super) const DELETION_CPU: &str = "deletion_cpu";
pub(super) const CREATE: &str = "create";
pub(super) const REFAULT: &str = "refault";
pub(super) const REFAULT_CPU: &str = "refault_cpu";
pub(super) const UNTIL_FREED: &str = "until_freed";
pub(super) const UNTIL_FREED_PARKED: &str = "until_freed_parked";
pub(super) const PEAK_TABLES: &str = "peak_tables";
pub(super) const PEAK_TABLES_PARKED: &str = "peak_tables_parked";
pub(super) const HELD_PARKED: &str = "held_parked";
pub(super) const ZAP_SLICE: &str = "zap_slice";
pub(super) const GUEST_STALL: &str = "guest_stall";
pub(super) const SPARSE_DELETE: &str = "sparse_delete";
pub(super) const SPARSE_DELETE_CPU: &str = "sparse_delete_cpu";
pub(super) const SPARSE_CREATE: &str = "sparse_create";
pub(super) const LONGEST_PASS: &str = "longest_pass";

pub(super) static METRICS: [Metric; 21] = [
    Metric { name: ROOT_LOAD, summary: "from seeing the request to running on the new root" },
    Metric { name: ROOT_LOAD_WAIT, summary: "of that, waiting until others were done" },
    Metric {
        name: ROOT_LOAD_AHEAD,
        summary: "who had the lock or queued for it when a root load came, both times",
    },
    Metric { name: ROOT_LOAD_CPU, summary: "what a root load took of its processor" },
    Metric { name: DELETE_CPU, summary: "what deleting the slot takes of the caller's processor" },
    Metric {
        name: DELETION_CPU,
        summary: "that, vCPUs' root loads, the worker and the reclaimer, until all is free",
    },
    Metric { name: DELETE, summary: "deleting the slot, until no vCPU uses its memory" },
    Metric { name: CREATE, summary: "creating it again" },
    Metric {
        name: REFAULT_CPU,
        summary: "a guest's processor, from the new root to a pass without a fault",
    },
    Metric { name: REFAULT, summary: "the same on the clock: back to full speed" },
    Metric {
        name: UNTIL_FREED,
        summary: "from the call's beginning until all tables are free that it leaves",
    },
    Metric { name: UNTIL_FREED_PARKED, summary: "the same with every other vCPU parked" },
    Metric { name: PEAK_TABLES, summary: "most frames of tables until then, old and new" },
    Metric { name: PEAK_TABLES_PARKED, summary: "the same with every other vCPU parked" },
    Metric { name: HELD_PARKED, summary: "frames of tables that vCPUs hold while they are parked" },
    Metric {
        name: ZAP_SLICE,
        summary: "a zap's time of its processor between two chances to stop",
    },
    Metric {
        name: GUEST_STALL,
        summary: "a guest's longest time for an access, exits included, in a round",
    },
    Metric {
        name: SPARSE_DELETE_CPU,
        summary: "deleting 2 MiB, of which a page a vCPU is mapped: the caller's processor (KVM)",
    },
    Metric { name: SPARSE_DELETE, summary: "the same on the clock (KVM)" },
    Metric { name: SPARSE_CREATE, summary: "creating that again (KVM)" },
    Metric {
        name: LONGEST_PASS,
        summary: "a guest's longest pass over its pages, while the slot goes and comes (KVM)",
    },
];

/// Takes away how long calls took on the clock, which is the scheduler's; and says of what else is measured on it that
/// it is not to be set in relation.
pub(super) fn without_clock(mut row: ResultRow) -> ResultRow {
    for name in [DELETE, CREATE, SPARSE_DELETE, SPARSE_CREATE, REFAULT] {
        row.metrics.remove(name);
        row.samples.remove(name);
    }
    [ROOT_LOAD, ROOT_LOAD_WAIT, UNTIL_FREED, UNTIL_FREED_PARKED, GUEST_STALL, LONGEST_PASS]
        .into_iter()
        .fold(
            row,
            |row, name| if row.metrics.contains_key(name) { row.uncompared(name) } else { row },
        )
}

#[cfg(test)]
mod tests {
    use mayfly_record::{Backend, Samples, Unit};

    use super::*;

    #[test]
    fn where_it_does_not_calls_have_the_time_of_their_processor_alone() {
        let one = Samples::of(Unit::Nanoseconds, [7]);
        let row = ResultRow::new("any", Backend::Machine, "any");
        let row = METRICS.iter().fold(row, |row, metric| row.metric(metric.name, &one));
        let row = without_clock(row);
        let has = |name| (row.metrics.contains_key(name), row.samples.contains_key(name));
        assert_eq!([DELETE, SPARSE_DELETE].map(has), [(false, false); 2]);
        assert_eq!([DELETE_CPU, SPARSE_DELETE_CPU, UNTIL_FREED].map(has), [(true, true); 3]);
        let uncompared = |name| row.uncompared.contains(name);
        assert_eq!([UNTIL_FREED, DELETE_CPU, REFAULT_CPU].map(uncompared), [true, false, false]);
    }
}
