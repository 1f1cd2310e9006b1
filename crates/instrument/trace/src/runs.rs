//! Several runs of the same program: the median of each phase and of each cause's wait, and how often each was named.
//!
//! They become rows of a record, `mayfly.record/1`, with a round a run: so its intervals, its comparison and its bounds
//! are those of every other record.

use std::collections::BTreeMap;
use std::fmt;

use mayfly_record::units::{duration, things};
use mayfly_record::{Backend, Description, MetricDescription, ResultRow, Samples, Summary, Unit};

use crate::causes::CODES;
use crate::figures::{COUNTERS, figure_names};
use crate::record::{Recorder, Stall, Trace};

/// What the waits of a cause are called among the figures, and how often the cause was named.
const WAITS: &str = "wait_";
const NAMED: &str = "named_";
const UNEXPLAINED: &str = "unexplained";
/// How many runs there were.
const RUNS: &str = "runs";

/// What several runs came to.
#[derive(Default)]
pub struct Runs {
    command: String,
    recorder: Recorder,
    count: u64,
    /// By row and by figure: what each run had of it.
    figures: BTreeMap<String, BTreeMap<String, (Unit, Vec<u64>)>>,
    /// How many runs named each cause.
    named: BTreeMap<&'static str, u64>,
    /// How many runs have lost something of their record.
    incomplete: u64,
}

/// The figures of causes that a bound may name: times, and counts.
pub fn figures_of_causes() -> (Vec<String>, Vec<String>) {
    let with = |start: &'static str| causes().map(move |code| figure(start, code)).collect();
    let mut counts: Vec<String> = with(NAMED);
    counts.push(RUNS.to_owned());
    (with(WAITS), counts)
}

fn causes() -> impl Iterator<Item = &'static str> {
    CODES.into_iter().chain([UNEXPLAINED])
}

fn figure(start: &str, code: &str) -> String {
    format!("{start}{}", code.replace('-', "_"))
}

impl Runs {
    /// Adds a run that has been concluded.
    pub fn add(&mut self, trace: &Trace) {
        self.command = trace.command.join(" ");
        self.recorder = trace.recorder;
        self.count += 1;
        self.incomplete += u64::from(trace.incomplete().is_some());
        for row in [trace.figures()].into_iter().chain(trace.figures_of_vms()) {
            for (name, summary) in &row.metrics {
                self.keep(&row.variant, name, summary.unit.clone(), summary.p50);
            }
            for (name, count) in &row.counters {
                self.keep(&row.variant, name, Unit::Count, *count);
            }
        }
        for code in causes() {
            let waits = trace.stalls.iter().filter(|stall| code_of(stall) == code);
            let (count, took) = waits.fold((0, 0), |(n, took), one| (n + 1, took + one.took));
            if count > 0 {
                *self.named.entry(code).or_default() += 1;
                self.keep("program", &figure(WAITS, code), Unit::Nanoseconds, took);
            }
        }
    }

    fn keep(&mut self, row: &str, name: &str, unit: Unit, value: u64) {
        let row = self.figures.entry(row.to_owned()).or_default();
        row.entry(name.to_owned()).or_insert_with(|| (unit, Vec::new())).1.push(value);
    }

    /// In how many runs something of the record was lost, in a clause; `None` if in none.
    pub fn incomplete(&self) -> Option<String> {
        let (count, runs) = (self.incomplete, things(self.count, "run"));
        (count > 0).then(|| format!("in {count} of {runs} something of the record was lost"))
    }

    /// How many runs there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The rows of a record: of the program, and of each VM if there are several.
    pub fn rows(&self) -> Vec<ResultRow> {
        let row = |(name, figures): (&String, &BTreeMap<String, (Unit, Vec<u64>)>)| {
            let row = ResultRow::new("trace", Backend::Kvm, name);
            let row = row.param("recorder", self.recorder.name());
            let row = figures.iter().fold(row, |row, (name, (unit, values))| {
                let rounds = values.iter().map(|value| [*value]);
                row.metric(name, &Samples::by_round(unit.clone(), rounds))
            });
            if name != "program" {
                return row;
            }
            let row = row.counter(RUNS, self.count);
            self.named
                .iter()
                .fold(row, |row, (code, runs)| row.counter(&figure(NAMED, code), *runs))
        };
        self.figures.iter().map(row).collect()
    }

    /// What the rows are of.
    pub fn description(&self) -> Description {
        let described = |name: String, headline| {
            let summary = summary_of(&name);
            MetricDescription { name, summary, headline }
        };
        let whole = ["start", "stop", "total", "longest"];
        let figures = figure_names().into_iter().map(|name| {
            let headline = whole.contains(&&name[..]);
            described(name, headline)
        });
        let counts = COUNTERS.into_iter().map(|name| described(name.to_owned(), false));
        let waits = self.named.keys().map(|code| described(figure(WAITS, code), true));
        Description {
            name: "trace".to_owned(),
            summary: format!("runs of {}", self.command),
            metrics: figures.chain(waits).chain(counts).collect(),
            ..Description::default()
        }
    }
}

/// What a figure is, in a line.
fn summary_of(name: &str) -> String {
    match name {
        "start" => "from the program's execution to the first entry of a vCPU".to_owned(),
        "stop" => "from the last exit of a vCPU to the end of the process".to_owned(),
        "total" => "from the beginning of the trace to its end".to_owned(),
        "longest" => "the longest wait".to_owned(),
        "calls" => "calls that were recorded".to_owned(),
        "stops" => "how often a thread was stopped".to_owned(),
        name => match name.strip_prefix(WAITS) {
            Some(cause) => format!("waits by {} in a run that has one", cause.replace('_', "-")),
            None => format!("the phase until {}", name.replace('_', " ")),
        },
    }
}

fn code_of(stall: &Stall) -> &str {
    stall.cause.as_ref().map_or(UNEXPLAINED, |cause| &cause.code)
}

/// A table of the figures, and one of the causes.
impl fmt::Display for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.command, things(self.count, "run"))?;
        writeln!(f, "recorded by {}", self.recorder)?;
        if let Some(why) = self.incomplete() {
            writeln!(f, "incomplete: {why}")?;
        }
        let order: Vec<String> = figure_names();
        for row in self.rows() {
            let title = if row.variant == "program" { "until" } else { &row.variant };
            writeln!(
                f,
                "\n{title:<20} {:>9}  {:<21}  {:>9}  {:>9}  runs",
                "median", "95% interval", "least", "most"
            )?;
            for name in order.iter().map(String::as_str) {
                if let Some(summary) = row.metrics.get(name) {
                    writeln!(f, "{name:<20} {}", figures(summary))?;
                }
            }
        }
        let waits: Vec<ResultRow> =
            self.rows().into_iter().filter(|row| row.variant == "program").collect();
        let Some(row) = waits.first().filter(|_| !self.named.is_empty()) else {
            return writeln!(f, "\nno run had a wait of half a tick or more");
        };
        writeln!(
            f,
            "\n{:<20} {:>9}  {:<21}  {:>9}  {:>9}  runs",
            "waits by cause", "median", "95% interval", "least", "most"
        )?;
        let mut named: Vec<(&&str, &u64)> = self.named.iter().collect();
        named.sort_by_key(|(_, runs)| std::cmp::Reverse(**runs));
        for (code, _) in named {
            if let Some(summary) = row.metrics.get(&figure(WAITS, code)) {
                writeln!(f, "{code:<20} {} of {}", figures(summary), self.count)?;
            }
        }
        Ok(())
    }
}

/// Median, interval, least, most, and of how many runs.
fn figures(summary: &Summary) -> String {
    let interval = match summary.p50_interval {
        Some([low, high]) => format!("{} to {}", duration(low), duration(high)),
        None => "-".to_owned(),
    };
    let [p50, min, max] = [summary.p50, summary.min, summary.max].map(duration);
    format!("{p50:>9}  {interval:<21}  {min:>9}  {max:>9}  {:>4}", summary.count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Cause;

    fn trace(span: u64, waits: &[(Option<&str>, u64)]) -> Trace {
        let stall = |(code, took): &(Option<&str>, u64)| Stall {
            took: *took,
            cause: code.map(|code| Cause { code: code.to_owned(), ..Cause::default() }),
            ..Stall::default()
        };
        Trace {
            command: vec!["/vmm".to_owned()],
            span,
            stalls: waits.iter().map(stall).collect(),
            ..Trace::default()
        }
    }

    fn three() -> Runs {
        let mut runs = Runs::default();
        runs.add(&trace(10, &[(Some("grace-period"), 4), (Some("grace-period"), 5), (None, 1)]));
        runs.add(&trace(30, &[(Some("vm-destruction"), 7)]));
        runs.add(&trace(20, &[(Some("grace-period"), 3)]));
        runs
    }

    #[test]
    fn a_figure_is_the_median_of_the_runs_and_a_cause_s_of_those_that_have_it() {
        let rows = three().rows();
        assert_eq!(rows.len(), 1);
        let of = |name: &str| rows[0].metrics.get(name).map(|one| (one.p50, one.count, one.rounds));
        assert_eq!(of("total"), Some((20, 3, 3)));
        assert_eq!(of("wait_grace_period"), Some((3, 2, 2)));
        assert_eq!(of("wait_vm_destruction"), Some((7, 1, 1)));
        assert_eq!(of("wait_own_sleep"), None);
        let counted = &rows[0].counters;
        assert_eq!((counted["runs"], counted["named_grace_period"]), (3, 2));
        assert_eq!(counted["named_unexplained"], 1);
        assert_eq!(rows[0].params["recorder"], "ptrace");
    }

    #[test]
    fn the_table_says_how_often_each_cause_was_named() {
        let text = three().to_string();
        let line = |name: &str| {
            let found = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
            found.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(line("grace-period"), "grace-period 3 ns - 3 ns 9 ns 2 of 3");
        assert_eq!(line("total"), "total 20 ns - 10 ns 30 ns 3");
        assert!(text.starts_with("/vmm: 3 runs\n"), "{text}");
    }

    #[test]
    fn runs_that_lost_something_are_counted() {
        let mut runs = three();
        assert_eq!(runs.incomplete(), None);
        runs.add(&Trace { lost_events: 1, ..trace(10, &[]) });
        assert!(runs.to_string().contains("\nincomplete: in 1 of 4 runs something"), "{runs}");
    }

    #[test]
    fn each_figure_of_a_cause_may_be_bounded_and_is_described() {
        let runs = three();
        let (times, counts) = figures_of_causes();
        let row = &runs.rows()[0];
        let described = runs.description();
        for name in row.metrics.keys() {
            assert!(described.metrics.iter().any(|one| one.name == *name), "{name}");
            assert!(!name.starts_with(WAITS) || times.contains(name), "{name}");
        }
        assert!(row.counters.keys().all(|name| counts.contains(name)), "{:?}", row.counters);
    }
}
