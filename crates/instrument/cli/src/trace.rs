//! `mayfly trace`.

use std::fs;
use std::path::PathBuf;

use mayfly_record::units::things;
use mayfly_record::{Backend, Record, Sink};
use mayfly_report::{Threshold, ThresholdError};
use mayfly_trace::{
    COUNTERS, Choice, End, Launch, Text, Trace, attach_by, figure_names, figure_rows,
    measure_gains, prove, record_by, runs_to_prove,
};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::args;
use crate::built::host;
use crate::failure::Failure;
use crate::output::Stream;
use crate::runs::runs;
use crate::traced::{end_as, failure, launch, may_write, names_a_cause, within};

/// Runs a program, and says where its VM's life went. Ends as the program does.
pub(crate) fn trace(options: &args::Trace) -> Result<(), Failure> {
    let has_causes = options.runs.is_some();
    let names = |bound| names_something(bound, has_causes);
    options.fail_if.iter().try_for_each(names)?;
    options.pid.map_or(Ok(()), is_there)?;
    if let Some(count) = options.runs {
        return runs(options, count);
    }
    let files = Files::open(options)?;
    let launch = launch(options);
    let mut warn = may_write;
    if let Some(pid) = options.pid {
        let mut told = |line: &str| {
            if !options.quiet {
                warn(line);
            }
        };
        let recorded = attach_by(options.recorder.into(), pid, &mut told).map_err(failure)?;
        return conclude(options, &launch, recorded.trace, &files).1;
    }
    let recorded = record_by(options.recorder.into(), &launch, &mut warn).map_err(failure)?;
    let (end, verdict) = conclude(options, &launch, recorded.trace, &files);
    end_as(end, verdict)
}

/// Refuses a process that there is not, or that has ended and is still to be waited for, before anything is said of it.
pub(crate) fn is_there(pid: i32) -> Result<(), Failure> {
    let found = Pid::from_raw(pid).map_or(Err(Errno::SRCH), test_kill_process);
    if found == Err(Errno::SRCH) {
        return Err(Failure::runtime(format_args!("there is no process {pid}")));
    }
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let says = |name: &str, value: &str| {
        let mut fields = status.lines().filter_map(|line| line.split_once(":\t"));
        fields.any(|(field, said)| field == name && said.split(' ').next() == Some(value))
    };
    // The first thread of a process may end before the others.
    if says("State", "Z") && says("Threads", "1") {
        return Err(Failure::runtime(format_args!("process {pid} has ended")));
    }
    Ok(())
}

/// Where a trace goes, opened before the program runs.
struct Files {
    json: Option<Sink>,
    timeline: Option<Sink>,
}

impl Files {
    fn open(options: &args::Trace) -> Result<Self, Failure> {
        let open = |path: &Option<PathBuf>| {
            path.as_deref().map(Sink::open).transpose().map_err(Failure::runtime)
        };
        let files = Self { json: open(&options.json)?, timeline: open(&options.timeline)? };
        let is_stdout = |sink: &Option<Sink>| sink.as_ref().is_some_and(Sink::is_stdout);
        let is_same = options.json.is_some() && options.json == options.timeline;
        if is_same || is_stdout(&files.json) && is_stdout(&files.timeline) {
            return Err(Failure::usage("the trace and its timeline cannot go to the same place"));
        }
        Ok(files)
    }

    /// Writes what is wanted. That one cannot be written does not cost the other.
    fn keep(&self, trace: &Trace) -> Result<(), Failure> {
        Self::write([&self.json, &self.timeline].map(Option::as_ref), trace)
    }

    /// Writes what is wanted to files, in which it can be written once more: whatever ends this process before, the trace
    /// is there.
    fn keep_for_now(&self, trace: &Trace) {
        let files = [&self.json, &self.timeline];
        let files = files.map(|sink| sink.as_ref().filter(|sink| sink.is_file()));
        // What is wrong now is so at the end, too, and is said then.
        let _ = Self::write(files, trace);
    }

    fn write([json, timeline]: [Option<&Sink>; 2], trace: &Trace) -> Result<(), Failure> {
        let write = |sink: Option<&Sink>, text: &dyn Fn(&Trace) -> String| {
            sink.map_or(Ok(()), |sink| sink.write(&text(trace)).map_err(Failure::runtime))
        };
        let json = write(json, &Trace::to_json);
        write(timeline, &Trace::to_timeline).and(json)
    }
}

/// Keeps and prints what there is to say; how the program ended, and what went wrong here.
fn conclude(
    options: &args::Trace,
    launch: &Launch,
    trace: Trace,
    files: &Files,
) -> (Option<End>, Result<(), Failure>) {
    let end = trace.end;
    (end, told(options, launch, trace, files))
}

fn told(
    options: &args::Trace,
    launch: &Launch,
    trace: Trace,
    files: &Files,
) -> Result<(), Failure> {
    let host = host();
    let mut trace = trace.concluded_from(host, &options.from);
    let measures_gains = options.prove || options.gain;
    if measures_gains {
        files.keep_for_now(&trace);
    }
    let mut proved = Ok(true);
    if options.prove {
        let runs = runs_to_prove(&trace);
        if runs > 0 && !options.quiet {
            Stream::Err.write(&format!("mayfly: running the program {runs} times more\n"))?;
        }
        proved = prove(launch, &mut trace).map_err(failure);
    }
    // A user who has interrupted the one does not wait for the other.
    if measures_gains && matches!(proved, Ok(true)) {
        measure_gains(&mut trace, &mut |ways| {
            if !options.quiet {
                let ways = things(ways as u64, "better way");
                // Standard error may be closed.
                let _ = Stream::Err
                    .write(&format!("mayfly: replaying its calls as recorded, and in {ways}\n"));
            }
        });
    }
    let kept = files.keep(&trace);
    if !options.quiet {
        Stream::Err.write(&Text(&trace).to_string())?;
    }
    // What was recorded is there, whatever became of the proof.
    kept.and(proved).and_then(|_| keeps(options, &trace))
}

impl From<args::Recorder> for Choice {
    fn from(wanted: args::Recorder) -> Self {
        match wanted {
            args::Recorder::Auto => Self::Auto,
            args::Recorder::Tracefs => Self::Tracefs,
            args::Recorder::Ptrace => Self::Ptrace,
        }
    }
}

/// Refuses a bound that nothing can be meant by, before the program runs.
fn names_something(threshold: &Threshold, has_causes: bool) -> Result<(), Failure> {
    let wrong = |error: ThresholdError| Failure::usage(error.to_string());
    let mut may = false;
    let (names, text) = (figure_names(), threshold.to_string());
    // Of a VM only those bounds can be that name it.
    let rows = figure_rows().filter(|row| row == "program" || text.contains(row.as_str()));
    for row in &rows.collect::<Vec<_>>() {
        for counter in COUNTERS {
            may |= threshold
                .may_name_the_counter("trace", Backend::Kvm, row, counter)
                .map_err(wrong)?;
        }
        for name in &names {
            // All of them are times.
            may |= threshold.may_name("trace", Backend::Kvm, row, (name, true)).map_err(wrong)?;
        }
    }
    if may || has_causes && names_a_cause(threshold) {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "'{threshold}' names no figure of a trace; there are {}, {}",
        figure_names().join(", "),
        COUNTERS.join(" and ")
    )))
}

/// Whether every figure of a trace is on the right side of every bound.
fn keeps(options: &args::Trace, trace: &Trace) -> Result<(), Failure> {
    let host = trace.host.clone().unwrap_or_default();
    let rows = [trace.figures()].into_iter().chain(trace.figures_of_vms());
    Failure::if_incomplete(&options.fail_if, trace.incomplete())?;
    within(&options.fail_if, &Record::new(host, rows.collect()))
}
