//! Every metric of a group: a block for each metric, a line for each variant.
//!
//! The median has the interval in which it lies at 95 %, as how far that goes at most to either side. The tail is the
//! highest percentile that so many samples carry.

use std::fmt;

use mayfly_record::{BASELINE, Summary, units};

use crate::group::{Group, label};
use crate::text::{Columns, Kind, Style};

/// Writes the table of one group, unless nothing was measured in it.
pub(crate) fn write(
    f: &mut fmt::Formatter<'_>,
    group: &Group<'_>,
    metrics: &[&str],
    style: Style,
) -> fmt::Result {
    let mut columns = Columns::new();
    let head = [&group.title, "n", "min", "p50", "+-", "tail", "max", "ratio"];
    columns.line(Kind::Head, head.map(str::to_owned));
    let mut measured = false;
    for metric in metrics {
        let mut lines =
            group.rows.iter().filter_map(|row| Some((row, row.metrics.get(*metric)?))).peekable();
        if lines.peek().is_none() {
            continue;
        }
        measured = true;
        columns.title(metric);
        for (row, summary) in lines {
            let is_baseline = row.variant == BASELINE;
            let times = group
                .baseline(metric, row.backend)
                .filter(|_| !row.uncompared.contains(*metric))
                .and_then(|baseline| ratio(summary, baseline));
            let cells = [
                format!("  {}", label(row)),
                summary.count.to_string(),
                summary.unit.shown(summary.min),
                summary.unit.shown(summary.p50),
                either_side(summary),
                tail(summary),
                summary.unit.shown(summary.max),
                times.unwrap_or_default(),
            ];
            columns.line(if is_baseline { Kind::Baseline } else { Kind::Plain }, cells);
        }
    }
    if !measured {
        // What was counted and checked stands below.
        return if group.title.is_empty() {
            Ok(())
        } else {
            writeln!(f, "\n{}", style.faint(&group.title))
        };
    }
    writeln!(f)?;
    columns.write(f, style)
}

/// How far from the median the interval goes in which it lies, in per cent of it.
fn either_side(summary: &Summary) -> String {
    let width = summary.half_width().filter(|_| summary.p50 > 0);
    width.map_or_else(|| "-".to_owned(), units::percent)
}

/// The highest percentile there is.
fn tail(summary: &Summary) -> String {
    let named = |name: &str, number: Option<u64>| {
        number.map(|number| format!("{name} {}", summary.unit.shown(number)))
    };
    named("p99", summary.p99).or_else(|| named("p90", summary.p90)).unwrap_or("-".to_owned())
}

/// How many times the baseline's median this one is; nothing if the baseline's is below what a clock
/// shows, or counts something else.
fn ratio(summary: &Summary, baseline: &Summary) -> Option<String> {
    (baseline.p50 > 0 && baseline.unit == summary.unit)
        .then(|| units::ratio(summary.p50 as f64 / baseline.p50 as f64))
}
