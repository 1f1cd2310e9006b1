//! The figures of a trace that a bound may be about.

use mayfly_record::{Backend, ResultRow, Samples};

use crate::phases::{PHASES, metric};
use crate::record::Trace;

/// What of [`Trace::figures`] is counted.
pub const COUNTERS: [&str; 2] = ["calls", "stops"];

/// What of [`Trace::figures`] is a time.
pub fn figure_names() -> Vec<String> {
    let whole = ["start", "stop", "total", "longest"].map(str::to_owned);
    whole.into_iter().chain(PHASES.map(metric)).collect()
}

impl Trace {
    /// The figures that bounds are held against, as a row of a record: `start`, `stop`, `total`, `longest` (wait) and each
    /// phase, as times; how many `calls` and `stops` there were.
    pub fn figures(&self) -> ResultRow {
        let single = |time: u64| {
            let mut samples = Samples::default();
            samples.record_ns(time);
            samples
        };
        let whole = [
            ("start", self.start()),
            ("stop", self.stop()),
            ("total", Some(self.span)),
            ("longest", Some(self.stalls.first().map_or(0, |stall| stall.took))),
        ];
        let counts = [self.calls.len() as u64, self.stops.count];
        let row = COUNTERS
            .into_iter()
            .zip(counts)
            .fold(ResultRow::new("trace", Backend::Kvm, "program"), |row, (name, count)| {
                row.counter(name, count)
            });
        let row = whole.into_iter().fold(row, |row, (name, time)| match time {
            Some(time) => row.metric(name, &single(time)),
            None => row,
        });
        let phases = self.phases.iter();
        phases.fold(row, |row, phase| row.metric(&metric(&phase.name), &single(phase.took)))
    }
}
