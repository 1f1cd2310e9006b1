//! `mayfly watch`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use mayfly_record::Sink;
use mayfly_watch::{Sight, Watcher, csv, head_of_csv, json, openmetrics, text};

use crate::failure::Failure;
use crate::output::Stream;

/// Show all VMs of this host, one line each: their state, their exits, and the calls that wait
///
/// The command shows the VMs of any VMM. It shows those of other users only to root. It reads what the kernel reports; it
/// stops no VM and changes nothing. BUSY is the share of looks that found a thread of a vCPU at work and not in a halt. On
/// a terminal, the table stays in its place. NAME is what the command line of the VMM calls the VM, or else the program. ^C ends the command.
#[derive(Args)]
#[expect(clippy::doc_markdown, reason = "this is the help, which is no Markdown")]
#[command(after_help = EXAMPLES)]
pub(crate) struct Watch {
    /// Show only the VMs of process PID
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pid: Option<i32>,

    /// Print a table after each interval of this length, as in 500ms, 2s or 1min
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval, allow_negative_numbers = true)]
    interval: Duration,

    /// End after N intervals
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Print comma-separated values: one line for each VM and interval
    #[arg(long)]
    csv: bool,

    /// Print a JSON object in a line after each interval
    #[arg(long, conflicts_with = "csv")]
    json: bool,

    /// Write metrics to FILE in the OpenMetrics text format, for the textfile collector of a node exporter. The file is
    /// replaced as a whole after each interval; - is standard output
    #[arg(long, value_name = "FILE")]
    openmetrics: Option<PathBuf>,

    /// Print no table
    #[arg(long, short, conflicts_with_all = ["csv", "json"], requires = "openmetrics")]
    quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  mayfly watch
  mayfly watch --count 1 --interval 5s
  mayfly watch --csv --interval 10s > vms.csv
  mayfly watch --json | jq -c '.vms[] | select(.waits != [])'
  mayfly watch --quiet --count 1 \\
    --openmetrics /var/lib/prometheus/node-exporter/mayfly-vms.prom

Exit codes:
  0  the VMs were watched, whatever was seen
  1  a file could not be written
  2  a name or a value is not accepted
  3  there is no such process";

/// Shows what is seen, interval by interval.
pub(crate) fn watch(options: &Watch) -> Result<(), Failure> {
    let metrics = options.openmetrics.as_deref().map(Sink::open).transpose();
    let metrics = metrics.map_err(Failure::runtime)?;
    if metrics.as_ref().is_some_and(Sink::is_stdout) && !options.quiet {
        return Err(Failure::usage("--openmetrics to standard output requires --quiet"));
    }
    is_there(options.pid)?;
    let mut watcher = Watcher::new(options.pid);
    let mut shown = Shown::new(options);
    let mut left = options.count;
    while left != Some(0) {
        let sight = watcher.look(options.interval);
        if let Some(sink) = &metrics {
            sink.write(&openmetrics(&sight)).map_err(Failure::runtime)?;
        }
        if !options.quiet && !shown.show(&sight)? {
            break;
        }
        left = left.map(|left| left - 1);
        // What ended while it was watched has been, and that is no failure.
        if is_there(options.pid).is_err() {
            break;
        }
    }
    Ok(())
}

fn is_there(pid: Option<i32>) -> Result<(), Failure> {
    match pid {
        Some(pid) if !Path::new(&format!("/proc/{pid}")).exists() => {
            Err(Failure::with_code(3, format_args!("there is no process {pid}")))
        }
        _ => Ok(()),
    }
}

/// How it is shown.
enum Shown {
    /// Tables; on a terminal, one in the place of the other.
    Tables { are_first: bool, is_terminal: bool },
    /// Lines for programs, and what stands above the first.
    Lines { head: String, form: fn(&Sight) -> String },
}

impl Shown {
    fn new(options: &Watch) -> Self {
        let is_terminal = || console::Term::stdout().is_term();
        match options {
            Watch { csv: true, .. } => Self::Lines { head: head_of_csv(), form: csv },
            Watch { json: true, .. } => Self::Lines { head: String::new(), form: json },
            _ => Self::Tables { are_first: true, is_terminal: is_terminal() },
        }
    }

    /// Says whether anybody reads it.
    fn show(&mut self, sight: &Sight) -> Result<bool, Failure> {
        match self {
            Self::Lines { head, form } => {
                Stream::Out.goes_on(&(std::mem::take(head) + &form(sight)))
            }
            Self::Tables { are_first, is_terminal } => {
                let table = text(sight, Stream::Out.width());
                if *is_terminal {
                    // A terminal that is gone is seen when it is written to.
                    let _ = console::Term::stdout().clear_screen();
                    return Stream::Out.goes_on(&table);
                }
                let gap = if std::mem::take(are_first) { "" } else { "\n" };
                Stream::Out.goes_on(&format!("{gap}{table}"))
            }
        }
    }
}

/// A time, as `500ms`, `2s` or `1min`.
fn interval(text: &str) -> Result<Duration, String> {
    let units = [("ms", 0.001), ("min", 60.0), ("s", 1.0), ("m", 60.0)];
    let is_plain = |number: &str| number.chars().all(|c| c.is_ascii_digit() || c == '.');
    let seconds = units.into_iter().find_map(|(unit, scale)| {
        let number = text.strip_suffix(unit)?.trim_end();
        Some(number.parse::<f64>().ok().filter(|_| is_plain(number))? * scale)
    });
    let accepted = seconds.filter(|seconds| (0.1..=3600.0).contains(seconds));
    let accepted = accepted.map(Duration::from_secs_f64);
    accepted.ok_or_else(|| "accepted are 100ms to 60min, as in 500ms, 2s or 1min".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_as_people_write_them() {
        for (text, ms) in
            [("100ms", 100), ("2s", 2000), ("1.5s", 1500), ("1min", 60_000), ("1 m", 60_000)]
        {
            assert_eq!(interval(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "1", "s", "99ms", "61min", "-1s", "infs", "nans", "1e3s", "2h", "1s1s"] {
            assert!(interval(text).unwrap_err().contains("100ms to 60min"), "{text}");
        }
    }
}
