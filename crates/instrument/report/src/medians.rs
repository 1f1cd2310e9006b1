//! The medians of all groups in one table: a line for each metric, a column for each variant.

use std::fmt;

use crate::group::{Group, label};
use crate::text::{Columns, Kind, NOTHING, Style};

/// Whether the table sets anything side by side.
pub(crate) fn are_several(groups: &[Group<'_>]) -> bool {
    labels(groups).len() > 1
}

fn labels(groups: &[Group<'_>]) -> Vec<String> {
    let mut labels: Vec<String> = Vec::new();
    for row in groups.iter().flat_map(|group| &group.rows) {
        if !labels.contains(&label(row)) {
            labels.push(label(row));
        }
    }
    labels
}

/// Writes the table, if there is anything to show, where the line before ends.
pub(crate) fn write(
    f: &mut fmt::Formatter<'_>,
    groups: &[Group<'_>],
    metrics: &[&str],
    style: Style,
) -> fmt::Result {
    // A variant that has none of them would be a column of nothing.
    let has_any = |wanted: &String| {
        let rows = groups.iter().flat_map(|group| &group.rows);
        rows.filter(|row| label(row) == *wanted)
            .any(|row| metrics.iter().any(|metric| row.metrics.contains_key(*metric)))
    };
    let labels: Vec<String> = labels(groups).into_iter().filter(has_any).collect();
    if labels.is_empty() {
        return Ok(());
    }
    let mut columns = Columns::new();
    // One by itself has its title above the table, and its lines begin where others are set in.
    let (above, indent) = match groups {
        [one] => (Some(one), ""),
        _ => (None, "  "),
    };
    let title = |columns: &mut Columns, group: &Group<'_>| {
        if !group.title.is_empty() {
            columns.title(&group.title);
        }
    };
    if let Some(group) = above {
        title(&mut columns, group);
    }
    columns.headed("p50", labels.iter().map(String::as_str));
    for group in groups {
        if above.is_none() {
            title(&mut columns, group);
        }
        for metric in metrics {
            let cells = labels.iter().map(|wanted| {
                let row = group.rows.iter().find(|row| label(row) == *wanted);
                let summary = row.and_then(|row| row.metrics.get(*metric));
                summary.map_or(NOTHING.to_owned(), |summary| summary.unit.shown(summary.p50))
            });
            columns.line(Kind::Plain, line(&format!("{indent}{metric}"), cells));
        }
    }
    columns.write(f, style)
}

fn line(first: &str, others: impl IntoIterator<Item = impl Into<String>>) -> Vec<String> {
    [first.to_owned()].into_iter().chain(others.into_iter().map(Into::into)).collect()
}
