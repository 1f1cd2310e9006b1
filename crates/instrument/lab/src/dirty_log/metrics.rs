//! What is measured.

use mayfly_record::{ResultRow, Samples, Unit, nearest_rank};

use super::rounds::{Call, Measured};
use crate::experiment::Metric;
use crate::start::Starts;
use crate::work;

pub(super) const CYCLE_CPU: &str = "cycle_cpu";
pub(super) const START_CPU: &str = "start_cpu";
pub(super) const HARVEST_CPU: &str = "harvest_cpu";
pub(super) const CLEAR_CPU: &str = "clear_cpu";
pub(super) const STOP_CPU: &str = "stop_cpu";
pub(super) const START: &str = "start";
pub(super) const HARVEST: &str = "harvest";
pub(super) const CLEAR: &str = "clear";
pub(super) const STOP: &str = "stop";
pub(super) const STALL_P50: &str = "stall_p50";
pub(super) const STALL_P99: &str = "stall_p99";
pub(super) const STALL_P999: &str = "stall_p999";
pub(super) const STALL_LONGEST: &str = "stall_longest";
pub(super) const CALLED_STALL_P999: &str = "called_stall_p999";
pub(super) const CALLED_STALL_LONGEST: &str = "called_stall_longest";
pub(super) const STALLED: &str = "stalled";
pub(super) const LONGEST_PASS: &str = "longest_pass";

pub(super) static METRICS: [Metric; 17] = [
    Metric {
        name: CYCLE_CPU,
        summary: "the caller's CPU time of all calls of a cycle: start, harvests, clears, stop",
    },
    Metric { name: START_CPU, summary: "of that, switching the log on" },
    Metric { name: HARVEST_CPU, summary: "of that, one harvest, while the guest writes" },
    Metric {
        name: CLEAR_CPU,
        summary: "of that, taking the harvested pages out, where that is a call of its own",
    },
    Metric { name: STOP_CPU, summary: "of that, switching it off, until all is in blocks again" },
    Metric { name: START, summary: "switching the log on, on the clock" },
    Metric { name: HARVEST, summary: "one harvest, on the clock" },
    Metric { name: CLEAR, summary: "taking the harvested pages out, on the clock" },
    Metric { name: STOP, summary: "switching the log off, on the clock" },
    Metric {
        name: STALL_P50,
        summary: "a write that faults, until it is made: CPU time and waits; a round's median",
    },
    Metric { name: STALL_P99, summary: "the same, the 99th percentile of a round" },
    Metric { name: STALL_P999, summary: "the same, the 99.9th percentile of a round" },
    Metric { name: STALL_LONGEST, summary: "the same, the longest of a round" },
    Metric {
        name: CALLED_STALL_P999,
        summary: "of those that begin during a call, the 99.9th percentile of a round",
    },
    Metric {
        name: CALLED_STALL_LONGEST,
        summary: "of those that begin during a call, the longest",
    },
    Metric { name: STALLED, summary: "all of a round's stalls, of all vCPUs together" },
    Metric {
        name: LONGEST_PASS,
        summary: "a vCPU's longest pass over its pages while there is a log, on the clock (KVM)",
    },
];

/// The calls of one kind of a VM.
type CallsOf = fn(&Measured) -> &Vec<Call>;

/// Adds what VMs have come to.
pub(super) fn report(row: ResultRow, vms: &[Measured], has_clock: bool) -> ResultRow {
    let row = Starts::of_all(vms.iter().map(|vm| &vm.starts)).report(row);
    let by_round = |of: &dyn Fn(&Measured) -> Vec<u64>| {
        Samples::by_round(Unit::Nanoseconds, vms.iter().map(of))
    };
    let calls = |row: ResultRow, (cpu, wall, of): (&str, &str, CallsOf)| {
        let row = row.metric(cpu, &by_round(&|vm| of(vm).iter().map(|call| call.cpu).collect()));
        if !has_clock {
            return row;
        }
        row.metric(wall, &by_round(&|vm| of(vm).iter().map(|call| call.wall).collect()))
    };
    let stalls = |row: ResultRow, name: &str, called: bool, thousandths: usize| {
        row.metric(
            name,
            &by_round(&|vm| {
                let stalls = if called { &vm.called_stalls } else { &vm.stalls };
                nearest_rank(stalls, thousandths).into_iter().collect()
            }),
        )
    };
    let row = work::report(row, vms.iter().map(|vm| &vm.spent));
    let row = row.metric(CYCLE_CPU, &by_round(&|vm| vec![vm.cycle()]));
    let row = [
        (START_CPU, START, (|vm| &vm.start) as CallsOf),
        (HARVEST_CPU, HARVEST, |vm| &vm.harvest),
        (CLEAR_CPU, CLEAR, |vm| &vm.clear),
        (STOP_CPU, STOP, |vm| &vm.stop),
    ]
    .into_iter()
    .fold(row, calls);
    let row = stalls(row, STALL_P50, false, 500);
    let row = stalls(row, STALL_P99, false, 990);
    let row = stalls(row, STALL_P999, false, 999);
    let row = stalls(row, STALL_LONGEST, false, 1000);
    let row = stalls(row, CALLED_STALL_P999, true, 999);
    let row = stalls(row, CALLED_STALL_LONGEST, true, 1000);
    let all = |vm: &Measured| (!vm.stalls.is_empty()).then(|| vm.stalls.iter().sum());
    row.metric(STALLED, &by_round(&|vm| all(vm).into_iter().collect()))
        .metric(LONGEST_PASS, &by_round(&|vm| vm.passes.clone()))
}
