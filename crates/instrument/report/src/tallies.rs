//! What was counted and checked beside the measurements.

use std::collections::BTreeSet;
use std::fmt;

use mayfly_record::{Check, ResultRow, units};

use crate::group::{Group, label};
use crate::text::{Columns, Kind, Style};

/// Writes the counters of a group, a line for each and a column for each variant that has one; its checks, and what was
/// found.
pub(crate) fn write(f: &mut fmt::Formatter<'_>, group: &Group<'_>, style: Style) -> fmt::Result {
    let rows = || group.rows.iter();
    let counted: Vec<&ResultRow> = rows().copied().filter(|row| !row.counters.is_empty()).collect();
    let names: BTreeSet<&String> = counted.iter().flat_map(|row| row.counters.keys()).collect();
    if !names.is_empty() {
        let mut columns = Columns::new();
        let labels: Vec<String> = counted.iter().map(|row| label(row)).collect();
        columns.headed("counted", labels.iter().map(String::as_str));
        for name in names {
            let count = |row: &&ResultRow| {
                row.counters.get(name).map_or("-".to_owned(), |count| units::grouped(*count))
            };
            let cells = [format!("  {name}")].into_iter().chain(counted.iter().map(count));
            columns.line(Kind::Plain, cells);
        }
        writeln!(f)?;
        columns.write(f, style)?;
    }
    if rows().any(|row| !row.checks.is_empty()) {
        writeln!(f, "\n{}", style.faint("checked"))?;
    }
    for (row, check) in checks(group) {
        writeln!(f, "{}", checked("", row, check, style))?;
    }
    if rows().any(|row| !row.findings.is_empty()) {
        writeln!(f, "\n{}", style.faint("found"))?;
    }
    for (row, found) in rows().flat_map(|row| row.findings.iter().map(move |found| (row, found))) {
        let line = format!("{} {}: {}", label(row), found.name, found.detail);
        writeln!(f, "{}", style.filled(&line, "  ", "    "))?;
    }
    Ok(())
}

/// Writes the checks of a group that failed, if any did.
pub(crate) fn write_failed(
    f: &mut fmt::Formatter<'_>,
    group: &Group<'_>,
    style: Style,
) -> fmt::Result {
    for (row, check) in checks(group).filter(|(_, check)| !check.ok) {
        let of = if group.title.is_empty() { String::new() } else { format!("{}: ", group.title) };
        writeln!(f, "{}", checked(&of, row, check, style))?;
    }
    Ok(())
}

fn checks<'a>(group: &Group<'a>) -> impl Iterator<Item = (&'a ResultRow, &'a Check)> {
    group.rows.iter().copied().flat_map(|row| row.checks.iter().map(move |check| (row, check)))
}

fn checked(of: &str, row: &ResultRow, check: &Check, style: Style) -> String {
    const FAILED: &str = "FAILED";
    let detail =
        if check.detail.is_empty() { String::new() } else { format!(", {}", check.detail) };
    let verdict = if check.ok { "ok" } else { FAILED };
    let line = format!("{of}{} {}: {verdict}{detail}", label(row), check.name);
    let indent = if of.is_empty() { "  " } else { "" };
    let line = style.filled(&line, indent, "    ");
    if check.ok { line } else { line.replacen(FAILED, &style.alarm(FAILED), 1) }
}
