//! The medians of all groups in one table: a line for each metric, a column for each variant.

use std::fmt;

use crate::group::{Group, label};
use crate::text::{Columns, Kind, NOTHING, Style};
use crate::value::value;

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

/// Writes the table, if there is anything to show.
pub(crate) fn write(
    f: &mut fmt::Formatter<'_>,
    groups: &[Group<'_>],
    metrics: &[&str],
    style: Style,
) -> fmt::Result {
    let labels = labels(groups);
    if metrics.is_empty() || labels.is_empty() {
        return Ok(());
    }
    let mut columns = Columns::new();
    columns.headed("p50", labels.iter().map(String::as_str));
    for group in groups {
        let is_measured =
            |metric: &&&str| group.rows.iter().any(|row| row.metrics.contains_key(**metric));
        if !group.title.is_empty() && metrics.iter().any(|metric| is_measured(&metric)) {
            columns.title(&group.title);
        }
        for metric in metrics.iter().filter(is_measured) {
            let cells = labels.iter().map(|wanted| {
                let row = group.rows.iter().find(|row| label(row) == *wanted);
                let summary = row.and_then(|row| row.metrics.get(*metric));
                summary.map_or(NOTHING.to_owned(), |summary| value(summary.p50, &summary.unit))
            });
            columns.line(Kind::Plain, line(&format!("  {metric}"), cells));
        }
    }
    writeln!(f)?;
    columns.write(f, style)
}

fn line(first: &str, others: impl IntoIterator<Item = impl Into<String>>) -> Vec<String> {
    [first.to_owned()].into_iter().chain(others.into_iter().map(Into::into)).collect()
}
