//! `mayfly doctor`.

use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use clap::Args;
use mayfly_doctor::{COUNTED, COUNTERS, Document, Examination, Text, examine, openmetrics};
use mayfly_kvm::Kvm;
use mayfly_record::{Backend, Sink};
use mayfly_report::{Threshold, ThresholdError};

use crate::built::host;
use crate::failure::{Failure, and_more};
use crate::output::Stream;
use crate::vmm::{Asked, vmm};

/// Say what this host makes a VM wait for, and what to do about it
///
/// The command creates VMs of its own for less than ten seconds, and changes nothing else on the host. It says which calls
/// to KVM wait because of which earlier calls, and how long a VM's creation, first entry, first accesses to memory, and
/// end take. It also measures what another order of calls or another kind of memory gains on this host.
#[derive(Args)]
#[expect(clippy::doc_markdown, reason = "this is the help, which is no Markdown")]
#[command(after_help = EXAMPLES)]
pub(crate) struct Doctor {
    /// Write the findings and the measurements to FILE as JSON. With - or /dev/stdout, they go to standard output, and the
    /// text to standard error. With --pid, what is said of the process
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write the findings and the measurements to FILE as metrics, in the OpenMetrics text format, for the textfile collector
    /// of a node exporter. The file is replaced as a whole; - is standard output
    #[arg(long, value_name = "FILE")]
    openmetrics: Option<PathBuf>,

    /// Exit with 1 if this holds for a figure, as in 'memslot_add > 1ms', 'life.close.p50 > 20ms' or 'findings > 0'. The
    /// names are those that --full shows: PROBE.METRIC.STATISTIC, or one of the counters findings, waits, unclear,
    /// unmeasured and failed. The option may be repeated
    #[arg(long = "fail-if", value_name = "THRESHOLD")]
    fail_if: Vec<Threshold>,

    /// Say what KVM's calls take for the running process PID, by the mappings, VMs and vCPUs that it has, and examine nothing
    /// else. The process is not stopped
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..),
        conflicts_with_all = ["openmetrics", "fail_if"])]
    pid: Option<i32>,

    /// With --pid, take the times from FILE, which `mayfly laws --json` has written, and measure nothing. Without this option,
    /// the calls that matter are measured in less than a minute
    #[arg(long, value_name = "FILE", requires = "pid")]
    laws: Option<PathBuf>,

    /// Show every pair of calls and every median; with --pid, also the calls that take no more by what there is
    #[arg(long, conflicts_with = "quiet")]
    full: bool,

    /// Print no text
    #[arg(long, short)]
    quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  mayfly doctor
  mayfly doctor --fail-if 'waits > 0'
  mayfly doctor --pid 4242 --laws laws.json
  mayfly doctor --pid 4242 --laws laws.json --quiet --json - | jq .calls
  mayfly doctor --quiet --json - | jq '.findings[].code'
  mayfly doctor --quiet \\
    --openmetrics /var/lib/prometheus/node-exporter/mayfly.prom

Exit codes:
  0  the host was examined, whatever was found
  1  a --fail-if holds for a figure, or a file could not be written, or
     there is no process PID
  2  a name or a value is not accepted, or FILE has no laws
  3  nothing could be examined; one line says why";

/// Examines this host, tells of it, and holds it against bounds.
pub(crate) fn doctor(options: &Doctor) -> Result<(), Failure> {
    // Before anything else is opened: the number of a stream is then that of a stream.
    let open = |path: &Option<PathBuf>| path.as_deref().map(Sink::open).transpose();
    let json = open(&options.json).map_err(Failure::runtime)?;
    if let Some(pid) = options.pid {
        let (laws, json) = (options.laws.as_deref(), json.as_ref());
        return vmm(&Asked { pid, laws, full: options.full, quiet: options.quiet, json });
    }
    let metrics = open(&options.openmetrics).map_err(Failure::runtime)?;
    let to_stdout = |sink: &Option<Sink>| sink.as_ref().is_some_and(Sink::is_stdout);
    if to_stdout(&json) && to_stdout(&metrics) {
        return Err(Failure::usage("--json and --openmetrics cannot both go to standard output"));
    }
    options.fail_if.iter().try_for_each(names_something)?;
    let kvm = Kvm::open().map_err(Failure::nothing_ran)?;
    let host = host();
    let seen = examine(kvm, host);
    tell(options, &seen, json.as_ref(), metrics.as_ref())?;
    verdict(options, &seen)
}

/// Refuses a bound that nothing can be meant by, before seconds are spent.
fn names_something(threshold: &Threshold) -> Result<(), Failure> {
    let wrong = |error: ThresholdError| Failure::usage(error.to_string());
    let mut may = false;
    for counter in COUNTERS {
        may |= threshold
            .may_name_the_counter(mayfly_doctor::NAME, Backend::Kvm, COUNTED, counter)
            .map_err(wrong)?;
    }
    for (probe, metric) in mayfly_doctor::metrics() {
        // All of them are times.
        may |= threshold
            .may_name(mayfly_doctor::NAME, Backend::Kvm, probe, (&metric, true))
            .map_err(wrong)?;
    }
    if may {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "'{threshold}' names no figure of an examination; there are the counters {}, and what --full shows, as in memslot_add > 1ms or life.close.p50 > 20ms",
        COUNTERS.join(", ")
    )))
}

/// The text is printed even if the others cannot be written.
fn tell(
    options: &Doctor,
    seen: &Examination,
    json: Option<&Sink>,
    metrics: Option<&Sink>,
) -> Result<(), Failure> {
    let now = UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
    let kept = json.map_or(Ok(()), |sink| sink.write(&Document::of(seen).to_json()));
    let told = metrics.map_or(Ok(()), |sink| sink.write(&openmetrics(seen, now)));
    if !options.quiet {
        let taken = [json, metrics].into_iter().flatten().any(Sink::is_stdout);
        let stream = if taken { Stream::Err } else { Stream::Out };
        stream.write(&Text::new(seen, stream.width()).full(options.full).to_string())?;
    }
    kept.and(told).map_err(Failure::runtime)
}

/// Whether anything was measured, and every figure is on the right side of every bound.
fn verdict(options: &Doctor, seen: &Examination) -> Result<(), Failure> {
    let record = seen.record();
    let failed = seen.failed();
    if let Some(first) = failed.first().filter(|_| !seen.has_measured()) {
        return Err(Failure::nothing_ran(first));
    }
    for threshold in &options.fail_if {
        let violations = threshold.violations(&record).map_err(|error| match failed.first() {
            Some(why) => Failure::nothing_ran(format_args!("{threshold}: {why}")),
            None => Failure::usage(error.to_string()),
        })?;
        if let Some(first) = violations.first() {
            let more = and_more(violations.len() - 1);
            return Err(Failure::runtime(format_args!("{threshold}: {}{more}", first.what)));
        }
    }
    Ok(())
}
