//! A comparison as text, for people and for programs.

use std::fmt::{self, Write};
use std::str::FromStr;

use mayfly_record::{Record, ResultRow, Unit, units};
use serde_json::{Value, json};

use super::pairs::asked;
use super::statistics::FEWEST;
use super::{Comparison, Line, Verdict};
use crate::group::{label, listed};
use crate::text::{Columns, Kind, Style};

/// How a comparison is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For a terminal.
    #[default]
    Text,
    /// One JSON document.
    Json,
    /// A table for a merge request.
    Markdown,
    /// A line for each metric, with a heading.
    Csv,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Text, Self::Json, Self::Markdown, Self::Csv];

    /// The name used on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
            Self::Markdown => "markdown",
            Self::Csv => "csv",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || Self::ALL.map(Self::name).join(", ");
        let format = Self::ALL.into_iter().find(|format| format.name() == text);
        format.ok_or_else(|| format!("it is one of {}", known()))
    }
}

const HEAD: [&str; 6] = ["metric", "base", "new", "ratio", "95 %", "verdict"];

impl<'a> Comparison<'a> {
    /// The comparison as `format` says; as text and as Markdown, what is different alone, unless `full`.
    /// The text has lines of `width` columns.
    pub fn shown(&self, format: Format, full: bool, colour: bool, width: usize) -> String {
        let mut text = String::new();
        // Writing to a String does not fail.
        let _ = match format {
            Format::Text => self.text(&mut text, full, Style { colour, width }),
            Format::Markdown => self.markdown(&mut text, full),
            Format::Csv => self.csv(&mut text),
            Format::Json => writeln!(text, "{:#}", self.json()),
        };
        text
    }

    /// What it came to, in one line.
    pub fn summary(&self) -> String {
        let count = |verdict| self.lines.iter().filter(|line| line.verdict == verdict).count();
        format!(
            "{} metrics compared: {} more or slower, {} fewer or faster, {} cannot be told apart",
            self.lines.len(),
            count(Verdict::More),
            count(Verdict::Less),
            count(Verdict::CannotTell)
        )
    }

    /// What is to be known before it is believed.
    fn warnings(&self) -> impl Iterator<Item = String> {
        let hosts = self.differences_of_hosts();
        let hosts = (!hosts.is_empty()).then(|| format!("different hosts: {}", hosts.join("; ")));
        let partial = |name: &str, record: &Record| {
            Some(format!("{name} is incomplete: {}", record.partial.as_ref()?))
        };
        let partial = [partial("BASE", self.base), partial("NEW", self.new)];
        let few = [self.of_few("BASE", |line| line.base), self.of_few("NEW", |line| line.new)];
        let these = partial.into_iter().chain(few).flatten();
        hosts.into_iter().chain(these).chain(self.alone.iter().cloned())
    }

    /// Says so, where nothing can be told of some metrics of a record, however different they are.
    fn of_few(&self, name: &str, row: impl Fn(&Line<'a>) -> &'a ResultRow) -> Option<String> {
        let rounds = |line: &Line<'a>| row(line).rounds(line.metric).len();
        let few: Vec<usize> =
            self.lines.iter().map(rounds).filter(|count| *count < FEWEST).collect();
        let most = match few.iter().max()? {
            1 => "one round".to_owned(),
            most => format!("{most} rounds at most"),
        };
        Some(format!(
            "{name} has {most} of {} of {} metrics: below {FEWEST}, nothing can be told",
            few.len(),
            self.lines.len()
        ))
    }

    fn chosen(&self, full: bool) -> impl Iterator<Item = &Line<'a>> {
        self.lines.iter().filter(move |line| full || line.verdict != Verdict::CannotTell)
    }

    fn text(&self, out: &mut String, full: bool, style: Style) -> fmt::Result {
        for warning in self.warnings() {
            writeln!(out, "{}", style.alarm(&style.wrapped(&warning)))?;
        }
        let mut columns = Columns::new();
        let mut titled = String::new();
        let mut any = false;
        for line in self.chosen(full) {
            if !any {
                columns.line(Kind::Head, HEAD.map(str::to_owned));
                any = true;
            }
            let title = title(line);
            if title != titled {
                columns.title(&title);
                titled = title;
            }
            let cells = cells(line);
            let kind = if line.verdict == Verdict::CannotTell { Kind::Head } else { Kind::Plain };
            columns.line(kind, [format!("  {}", line.metric)].into_iter().chain(cells));
        }
        if any {
            columns.write(out, style)?;
            writeln!(out)?;
        }
        writeln!(out, "{}", style.wrapped(&self.summary()))
    }

    fn markdown(&self, out: &mut String, full: bool) -> fmt::Result {
        for warning in self.warnings() {
            writeln!(out, "**{}**\n", escaped(&warning))?;
        }
        if self.chosen(full).next().is_some() {
            writeln!(out, "| variant | {} |", HEAD.join(" | "))?;
            writeln!(out, "|{}", " --- |".repeat(HEAD.len() + 1))?;
        }
        for line in self.chosen(full) {
            let cells = cells(line).join(" | ");
            writeln!(out, "| {} | {} | {cells} |", escaped(&title(line)), escaped(line.metric))?;
        }
        writeln!(out, "\n{}", self.summary())
    }

    fn csv(&self, out: &mut String) -> fmt::Result {
        writeln!(
            out,
            "experiment,backend,variant,parameters,metric,unit,base_p50,new_p50,ratio,low,high,margin,verdict"
        )?;
        let number = |number: Option<f64>| number.map_or_else(String::new, |n| format!("{n:.4}"));
        for line in &self.lines {
            let row = line.base;
            let [base, new] = medians(line);
            writeln!(
                out,
                "{},{},{},{},{},{},{base},{new},{},{},{},{:.4},{}",
                quoted(&row.experiment),
                row.backend,
                quoted(&row.variant),
                quoted(&parameters(line)),
                quoted(line.metric),
                quoted(unit(line.unit)),
                number(line.ratio),
                number(line.interval.map(|[low, _]| low)),
                number(line.interval.map(|[_, high]| high)),
                line.margin,
                line.verdict.word(line.unit)
            )?;
        }
        Ok(())
    }

    fn json(&self) -> Value {
        let lines: Vec<Value> = self
            .lines
            .iter()
            .map(|line| {
                let [base, new] = medians(line);
                json!({
                    "experiment": line.base.experiment,
                    "backend": line.base.backend,
                    "variant": line.base.variant,
                    "params": asked(line.base),
                    "metric": line.metric,
                    "unit": unit(line.unit),
                    "base": base,
                    "new": new,
                    "ratio": line.ratio,
                    "interval": line.interval,
                    "margin": line.margin,
                    "verdict": line.verdict.word(line.unit),
                })
            })
            .collect();
        let warnings: Vec<String> = self.warnings().collect();
        json!({"schema": "mayfly.comparison/1", "warnings": warnings, "metrics": lines})
    }
}

fn medians(line: &Line<'_>) -> [u64; 2] {
    [line.base, line.new].map(|row| row.metrics.get(line.metric).map_or(0, |of| of.p50))
}

/// What stands in the columns after the metric's name.
fn cells(line: &Line<'_>) -> Vec<String> {
    let [base, new] = medians(line).map(|median| line.unit.shown(median));
    let none = || "-".to_owned();
    let interval = line.interval.map_or_else(none, |[low, high]| {
        format!("{} to {}", units::ratio(low), units::ratio(high))
    });
    let ratio = line.ratio.map_or_else(none, units::ratio);
    vec![base, new, ratio, interval, line.verdict.word(line.unit).to_owned()]
}

fn title(line: &Line<'_>) -> String {
    let parts = [line.base.experiment.clone(), label(line.base), parameters(line)];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

fn parameters(line: &Line<'_>) -> String {
    listed(&asked(line.base))
}

fn unit(unit: &Unit) -> &str {
    match unit {
        Unit::Nanoseconds => "ns",
        Unit::Count => "count",
        Unit::Other(unit) => unit,
    }
}

fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\r'], " ")
}

/// A field of CSV (RFC 4180).
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
