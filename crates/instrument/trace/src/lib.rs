//! A program that runs VMs is followed from outside: its calls to KVM, the phases of its life, its waits and their causes.
//!
//! [`record`] runs a program and gives a [`Trace`]; [`Trace::concluded`] finds in it what can be told, [`Text`] tells it.

// The kernel's words are signed here and unsigned there.
#![allow(clippy::cast_sign_loss, clippy::cast_possible_wrap)]

mod calls;
mod causes;
mod compare;
mod filter;
mod gain;
mod ioctl;
mod life;
mod listing;
mod page;
mod path;
mod phases;
mod prove;
mod read;
mod record;
mod recorder;
mod replay;
mod stalls;
mod sys;
mod text;
mod timeline;
mod words;

pub use compare::Comparison;
pub use gain::{Benefit, Change, Gain, Measured, Replay};
pub use listing::Calls;
pub use page::Page;
pub use path::{CriticalPath, Doing, Piece};
pub use phases::{PHASES, metric};
pub use prove::{prove, runs_to_prove};
pub use read::document;
pub use record::{
    Call, Cause, End, Object, Phase, Process, Recorder, SCHEMA, Sample, Stall, Stops, Thread,
    Trace, Used, Verdict, Wake,
};
pub use recorder::{
    Choice, Delay, Error, Launch, Output, Recorded, attach, attach_by, record, record_by,
};
pub use replay::measure_gains;
pub use text::Text;

/// The name of the call to KVM with this number, as linux/kvm.h has it; `KVM_0x...` where it is not known. Whether it is
/// on a vCPU's descriptor or on another one tells apart two that have one number.
pub fn ioctl_name(request: u64, on_vcpu: bool) -> String {
    let on = if on_vcpu { Object::Vcpu { vm: 0, id: 0 } } else { Object::Vm { vm: 0 } };
    ioctl::name(request, &on)
}

use mayfly_record::{Backend, Host, ResultRow, Samples};

impl Trace {
    /// The same with the host that it was made on, its phases, and its waits.
    #[must_use]
    pub fn concluded(mut self, host: Host) -> Self {
        self.host = Some(host);
        self.phases = self.find_phases();
        self.stalls = self.find_stalls();
        self.critical_paths = self.find_critical_paths();
        self
    }

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

impl Trace {
    /// The document, as it is kept in a file.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }
}

/// What of [`Trace::figures`] is counted.
pub const COUNTERS: [&str; 2] = ["calls", "stops"];

/// What of [`Trace::figures`] is a time.
pub fn figure_names() -> Vec<String> {
    let whole = ["start", "stop", "total", "longest"].map(str::to_owned);
    whole.into_iter().chain(PHASES.map(metric)).collect()
}
