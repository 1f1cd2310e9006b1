//! The figures of a trace that a bound may be about.

use mayfly_record::{Backend, ResultRow, Samples};

use crate::phases::{PHASES, metric};
use crate::record::{Life, Phase, Trace};
use crate::stalls::RUNNABLE;

/// What of [`Trace::figures`] is counted.
pub const COUNTERS: [&str; 2] = ["calls", "stops"];

/// What of [`Trace::figures`] is a time.
pub fn figure_names() -> Vec<String> {
    let whole = ["start", "stop", "total", "longest"].map(str::to_owned);
    whole.into_iter().chain(PHASES.map(metric)).collect()
}

/// What a row of the figures is called: of the whole program, or of one of several VMs.
const PROGRAM: &str = "program";
/// The VMs that a bound may name before it is known how many there are.
const MOST_VMS: usize = 256;

/// The rows that a bound may name: `program`, and `vm0` and so on.
pub fn figure_rows() -> impl Iterator<Item = String> {
    [PROGRAM.to_owned()].into_iter().chain((0..MOST_VMS).map(of_vm))
}

fn of_vm(vm: usize) -> String {
    format!("vm{vm}")
}

fn single(time: u64) -> Samples {
    let mut samples = Samples::default();
    samples.record_ns(time);
    samples
}

/// A row with these times, where they are known, and with a figure for each phase.
fn row(variant: &str, whole: &[(&str, Option<u64>)], phases: &[Phase]) -> ResultRow {
    let row = ResultRow::new("trace", Backend::Kvm, variant);
    let row = whole.iter().fold(row, |row, (name, time)| match time {
        Some(time) => row.metric(name, &single(*time)),
        None => row,
    });
    phases.iter().fold(row, |row, phase| row.metric(&metric(&phase.name), &single(phase.took)))
}

impl Trace {
    /// The figures that bounds are held against, as a row of a record: `start`, `stop`, `total`, `longest` (wait) and each
    /// phase, as times; how many `calls` and `stops` there were.
    pub fn figures(&self) -> ResultRow {
        let whole = [
            ("start", self.start()),
            ("stop", self.stop()),
            ("total", Some(self.span)),
            ("longest", Some(self.longest())),
        ];
        let counts = [self.calls.len() as u64, self.stops.count];
        let counted = COUNTERS.into_iter().zip(counts);
        counted
            .fold(row(PROGRAM, &whole, &self.phases), |row, (name, count)| row.counter(name, count))
    }

    /// The longest wait. What is added up of a busy host is none.
    fn longest(&self) -> u64 {
        let mut waits = self.stalls.iter().filter(|stall| stall.what != RUNNABLE);
        waits.next().map_or(0, |stall| stall.took)
    }

    /// The same of each VM, if the program has entered several: a row `vm0`, and so on.
    pub fn figures_of_vms(&self) -> Vec<ResultRow> {
        let of = |life: &Life| {
            let whole =
                [("start", Some(life.start)), ("stop", life.stop), ("total", Some(life.took))];
            row(&of_vm(life.vm), &whole, &life.phases)
        };
        self.lives.iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Stall;

    #[test]
    fn what_is_added_up_of_a_busy_host_is_not_the_longest_wait() {
        let stall = |what: &str, took| Stall { what: what.to_owned(), took, ..Stall::default() };
        let longest = |stalls| {
            let trace = Trace { stalls, ..Trace::default() };
            trace.figures().metrics["longest"].p50
        };
        assert_eq!(longest(vec![stall(RUNNABLE, 90), stall("close", 8), stall("mmap", 5)]), 8);
        assert_eq!((longest(vec![stall(RUNNABLE, 90)]), longest(vec![])), (0, 0));
    }

    #[test]
    fn each_vm_of_several_has_figures_that_bounds_may_name() {
        let phase = Phase { name: "VM created".into(), at: 7, took: 4, ..Phase::default() };
        let life = |vm, start| Life {
            vm,
            took: 50,
            start,
            stop: (vm == 1).then_some(9),
            phases: vec![phase.clone()],
            ..Life::default()
        };
        let trace = Trace { lives: vec![life(0, 20), life(1, 30)], ..Trace::default() };
        let rows = trace.figures_of_vms();
        let of = |row: &ResultRow, name: &str| row.metrics.get(name).map(|summary| summary.p50);
        let told: Vec<_> = rows
            .iter()
            .map(|row| (&row.variant[..], of(row, "start"), of(row, "stop"), of(row, "vm_created")))
            .collect();
        let expected = [("vm0", Some(20), None, Some(4)), ("vm1", Some(30), Some(9), Some(4))];
        assert_eq!(told, expected);
        assert!(rows.iter().all(|row| figure_rows().any(|name| name == row.variant)));
    }
}
