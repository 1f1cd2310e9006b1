//! Two traces side by side: phases, waits, calls.
//!
//! Each is of one run. What two runs of the same program differ by, by chance, is not known from them, and so nothing is
//! called slower or faster here.

use std::collections::BTreeMap;
use std::fmt::Write;

use mayfly_record::ResultRow;
use mayfly_record::units::{duration, ratio};
use serde_json::{Value, json};

use crate::figures::{COUNTERS, figure_names};
use crate::record::{Call, Trace};

/// Two traces, compared.
pub struct Comparison<'a> {
    base: &'a Trace,
    new: &'a Trace,
    parts: Vec<(&'static str, Vec<Line>)>,
}

/// One figure of both.
struct Line {
    name: String,
    kind: Kind,
    base: Option<u64>,
    new: Option<u64>,
}

/// What a figure is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Time,
    Count,
}

const HEAD: [&str; 4] = ["base", "new", "difference", "ratio"];

/// A difference that is smaller than a hundredth, or than this many nanoseconds, is not shown among those of a list.
const LEAST: u64 = 100_000;

impl Line {
    fn new(name: impl Into<String>, kind: Kind, base: Option<u64>, new: Option<u64>) -> Self {
        Self { name: name.into(), kind, base, new }
    }

    /// How many times the base's the new one is.
    fn ratio(&self) -> Option<f64> {
        let (base, new) = (self.base.filter(|base| *base > 0)?, self.new?);
        Some(new as f64 / base as f64)
    }

    fn differs(&self) -> bool {
        let (base, new) = (self.base.unwrap_or(0), self.new.unwrap_or(0));
        let least = if self.kind == Kind::Time { LEAST.max(base / 100) } else { 1 };
        base.abs_diff(new) >= least
    }

    /// Base, new, difference and ratio as a person reads them.
    fn cells(&self) -> [String; 4] {
        let show = |figure: u64| match self.kind {
            Kind::Time => duration(figure),
            Kind::Count => figure.to_string(),
        };
        let either = |figure: Option<u64>| figure.map_or_else(|| "-".to_owned(), show);
        let (base, new) = (self.base.unwrap_or(0), self.new.unwrap_or(0));
        let sign = if new < base { '-' } else { '+' };
        let difference = format!("{sign}{}", show(base.abs_diff(new)));
        let times = self.ratio().map_or_else(|| "-".to_owned(), ratio);
        [either(self.base), either(self.new), difference, times]
    }

    fn json(&self) -> Value {
        let unit = if self.kind == Kind::Time { "ns" } else { "count" };
        json!({"name": self.name, "unit": unit, "base": self.base, "new": self.new, "ratio": self.ratio()})
    }
}

impl<'a> Comparison<'a> {
    /// Compares `new` with `base`.
    pub fn of(base: &'a Trace, new: &'a Trace) -> Self {
        let both = [base, new];
        let figures = both.map(Trace::figures);
        let time = |name: &String| {
            let of = |row: &ResultRow| row.metrics.get(name).map(|summary| summary.p50);
            Line::new(name, Kind::Time, of(&figures[0]), of(&figures[1]))
        };
        let count = |name: &str| {
            let of = |row: &ResultRow| row.counters.get(name).copied();
            Line::new(name, Kind::Count, of(&figures[0]), of(&figures[1]))
        };
        let mut whole: Vec<Line> = figure_names().iter().map(time).collect();
        whole.extend(COUNTERS.map(count));
        whole.retain(|line| line.base.is_some() || line.new.is_some());
        let parts = vec![
            ("until", whole),
            ("longest waits by cause", side_by_side(Kind::Time, both.map(waits))),
            ("calls", side_by_side(Kind::Count, both.map(|one| calls(one, |_| 1)))),
            (
                "time in calls",
                side_by_side(Kind::Time, both.map(|one| calls(one, |call| call.took.unwrap_or(0)))),
            ),
        ];
        Self { base, new, parts }
    }

    /// The new one's figures, and how many times the base's each of those is that both have.
    pub fn ratios(&self) -> (ResultRow, Vec<(String, f64)>) {
        let figures = self.parts.first().map_or(&[][..], |(_, lines)| lines);
        let ratios = figures.iter().filter_map(|line| Some((line.name.clone(), line.ratio()?)));
        (self.new.figures(), ratios.collect())
    }

    /// As text: every phase, and of waits and calls those that differ, unless `full`.
    pub fn text(&self, full: bool) -> String {
        let mut text = self.about().map(|line| line + "\n").concat();
        for (title, lines) in self.shown(full) {
            let widest = lines.iter().map(|line| line.name.chars().count()).chain([title.len()]);
            let width = widest.max().unwrap_or(0);
            let row = |name: &str, [base, new, difference, times]: [String; 4]| {
                format!("{name:width$}  {base:>9}  {new:>9}  {difference:>10}  {times:>7}")
            };
            // Writing to a String does not fail.
            let _ = writeln!(text, "\n{}", row(title, HEAD.map(str::to_owned)));
            for line in lines {
                let _ = writeln!(text, "{}", row(&line.name, line.cells()));
            }
        }
        text
    }

    /// As Markdown, for a merge request.
    pub fn markdown(&self, full: bool) -> String {
        let mut text = self.about().map(|line| line.replace('|', "\\|") + "\n\n").concat();
        for (title, lines) in self.shown(full) {
            let _ = writeln!(
                text,
                "| {title} | {} |\n| --- | ---: | ---: | ---: | ---: |",
                HEAD.join(" | ")
            );
            for line in lines {
                let name = line.name.replace('|', "\\|");
                let _ = writeln!(text, "| {name} | {} |", line.cells().join(" | "));
            }
            text.push('\n');
        }
        text
    }

    /// A line a figure, all of them.
    pub fn csv(&self) -> String {
        let mut text = "part,name,unit,base,new,ratio\n".to_owned();
        let number = |figure: Option<u64>| figure.map_or_else(String::new, |one| one.to_string());
        for (title, lines) in &self.parts {
            for line in lines {
                let unit = if line.kind == Kind::Time { "ns" } else { "count" };
                let times = line.ratio().map_or_else(String::new, |times| format!("{times:.4}"));
                let name = line.name.replace('"', "\"\"");
                let (base, new) = (number(line.base), number(line.new));
                let _ = writeln!(text, "{title},\"{name}\",{unit},{base},{new},{times}");
            }
        }
        text
    }

    /// One JSON document, with all figures.
    pub fn json(&self) -> String {
        let parts = self.parts.iter().map(|(title, lines)| {
            let lines: Vec<Value> = lines.iter().map(Line::json).collect();
            ((*title).to_owned(), Value::Array(lines))
        });
        let parts: serde_json::Map<String, Value> = parts.collect();
        format!("{:#}\n", Value::Object(parts))
    }

    /// What is to be known before the figures are.
    fn about(&self) -> [String; 3] {
        let of = |trace: &Trace| {
            let kernel = trace.host.as_ref().map_or("unknown", |host| &host.kernel);
            format!("{} (by {}, Linux {kernel})", trace.command.join(" "), trace.recorder)
        };
        [
            format!("base: {}", of(self.base)),
            format!("new:  {}", of(self.new)),
            "one run of each: what they differ by may be chance".to_owned(),
        ]
    }

    fn shown(&self, full: bool) -> Vec<(&'static str, Vec<&Line>)> {
        let parts = self.parts.iter().enumerate().map(|(place, (title, lines))| {
            let lines = lines.iter().filter(|line| full || place == 0 || line.differs());
            (*title, lines.collect::<Vec<_>>())
        });
        parts.filter(|(_, lines)| !lines.is_empty()).collect()
    }
}

/// The figures of both by name, largest first.
fn side_by_side(kind: Kind, [base, new]: [BTreeMap<String, u64>; 2]) -> Vec<Line> {
    let mut names: Vec<&String> = base.keys().chain(new.keys()).collect();
    names.sort();
    names.dedup();
    let line =
        |name: &String| Line::new(name, kind, base.get(name).copied(), new.get(name).copied());
    let mut lines: Vec<Line> = names.into_iter().map(line).collect();
    lines.sort_by_key(|line| std::cmp::Reverse(line.base.max(line.new)));
    lines
}

/// How long the longest waits took, by cause; by what waited, where none is known.
fn waits(trace: &Trace) -> BTreeMap<String, u64> {
    let mut waits = BTreeMap::new();
    for stall in &trace.stalls {
        let unexplained = || format!("{}, unexplained", stall.what);
        let name = stall.cause.as_ref().map_or_else(unexplained, |cause| cause.code.clone());
        *waits.entry(name).or_default() += stall.took;
    }
    waits
}

/// Something of each call, summed by name.
fn calls(trace: &Trace, of: impl Fn(&Call) -> u64) -> BTreeMap<String, u64> {
    let mut calls = BTreeMap::new();
    for call in &trace.calls {
        let sum: &mut u64 = calls.entry(call.name.clone()).or_default();
        *sum = sum.saturating_add(of(call));
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Cause, Phase, Stall};

    fn trace(memory: u64, wait: Option<&str>, calls: &[(&str, u64)]) -> Trace {
        let call = |(name, took): &(&str, u64)| Call {
            name: (*name).to_owned(),
            took: Some(*took),
            ..Call::default()
        };
        let phase = Phase { name: "memory".into(), at: memory, took: memory, ..Phase::default() };
        let cause = |code: &str| Cause { code: code.into(), ..Cause::default() };
        let stall = |code| Stall { took: 5_000_000, cause: Some(cause(code)), ..Stall::default() };
        Trace {
            span: 100_000_000,
            phases: vec![phase],
            stalls: wait.map(stall).into_iter().collect(),
            calls: calls.iter().map(call).collect(),
            ..Trace::default()
        }
    }

    fn pair() -> [Trace; 2] {
        [
            trace(
                20_000_000,
                Some("grace-period"),
                &[("munmap", 9_000_000), ("close", 500), ("close", 500)],
            ),
            trace(10_000_000, None, &[("munmap", 2_000_000), ("close", 400), ("close", 600)]),
        ]
    }

    #[test]
    fn phases_waits_and_calls_stand_side_by_side() {
        let [base, new] = pair();
        let text = Comparison::of(&base, &new).text(false);
        let line =
            |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        let words = |name| line(name).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words("memory "), "memory 20.0 ms 10.0 ms -10.0 ms 0.500x");
        assert_eq!(words("total "), "total 100 ms 100 ms +0 ns 1.00x");
        assert_eq!(words("grace-period "), "grace-period 5.00 ms - -5.00 ms -");
        assert_eq!(words("munmap "), "munmap 9.00 ms 2.00 ms -7.00 ms 0.222x");
        assert!(text.contains("may be chance"));
        // As many, and as long: of no interest.
        assert_eq!(line("close "), "");
        assert!(Comparison::of(&base, &new).text(true).contains("\nclose "));
    }

    #[test]
    fn what_one_alone_has_is_there_and_has_no_ratio() {
        let [base, new] = pair();
        let document: Value = serde_json::from_str(&Comparison::of(&base, &new).json()).unwrap();
        let waits = document["longest waits by cause"].as_array().unwrap();
        assert_eq!(waits.len(), 1);
        assert_eq!((&waits[0]["new"], &waits[0]["ratio"]), (&Value::Null, &Value::Null));
        assert_eq!(waits[0]["base"], 5_000_000);
        let calls = document["calls"].as_array().unwrap();
        assert_eq!((&calls[0]["name"], &calls[0]["new"]), (&"close".into(), &2.into()));
    }

    #[test]
    fn tables_have_as_many_cells_in_each_row() {
        let [base, new] = pair();
        let comparison = Comparison::of(&base, &new);
        let csv = comparison.csv();
        assert!(
            csv.lines().count() > 5 && csv.lines().all(|line| line.matches(',').count() == 5),
            "{csv}"
        );
        let markdown = comparison.markdown(true);
        let rows: Vec<&str> = markdown.lines().filter(|line| line.starts_with('|')).collect();
        assert!(
            rows.len() > 5 && rows.iter().all(|line| line.matches('|').count() == 6),
            "{markdown}"
        );
    }

    #[test]
    fn ratios_are_of_the_figures_that_both_have() {
        let [base, new] = pair();
        let comparison = Comparison::of(&base, &new);
        let (row, ratios) = comparison.ratios();
        assert_eq!(row, new.figures());
        let of =
            |name: &str| ratios.iter().find(|(other, _)| other == name).map(|(_, times)| *times);
        assert_eq!(of("memory"), Some(0.5));
        assert_eq!(of("start"), None);
        assert_eq!(of("calls"), Some(1.0));
    }
}
