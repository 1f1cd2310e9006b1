//! A table: which figures stand in it, and its Markdown.

use std::fmt::Write;

use mayfly_record::Backend;
use serde_json::Value;

use crate::figure;
use crate::runs::Runs;
use crate::statistic::Statistic;

/// A table of one experiment's figures.
#[derive(Clone, Debug)]
pub struct Table {
    /// The document that has it, relative to the repository's root.
    pub document: &'static str,
    /// The name in its markers.
    pub name: &'static str,
    /// The arguments of `mayfly run` that measure it. The first names the experiment.
    pub arguments: &'static str,
    /// The parameters that its rows ran with, where a line names no others.
    pub params: Vec<(&'static str, Value)>,
    /// Its columns, without the one of titles.
    pub columns: Vec<Column>,
    /// Its lines, without the headings.
    pub lines: Vec<Line>,
}

/// A column: one variant.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// The heading.
    pub title: &'static str,
    /// The backend that the variant ran on.
    pub backend: Backend,
    /// The variant's name.
    pub variant: &'static str,
}

/// A line: one metric or counter.
#[derive(Clone, Debug)]
pub struct Line {
    /// The first cell.
    pub title: String,
    /// Names of metrics or counters. Of each row the first is shown that it has.
    pub names: Vec<&'static str>,
    /// Which number of a metric is shown.
    pub statistic: Statistic,
    /// Parameters that replace the table's.
    pub params: Option<Vec<(&'static str, Value)>>,
}

impl Table {
    /// The experiment whose figures it has.
    pub fn experiment(&self) -> &'static str {
        self.arguments.split(' ').next().unwrap_or_default()
    }

    /// The command that measures it, as its document has it.
    pub fn command(&self) -> String {
        let quote = if self.arguments.contains(' ') { "\"" } else { "" };
        format!("`make run ARGS={quote}{}{quote}`", self.arguments)
    }

    /// The table in Markdown.
    pub fn markdown(&self, runs: &Runs) -> String {
        let mut text = self.head();
        for line in &self.lines {
            let params = line.params.as_ref().unwrap_or(&self.params);
            let rows = |column: &Column| {
                runs.rows(self.experiment(), column.backend, column.variant, params)
            };
            let cells = self.columns.iter().map(|column| {
                let rows = rows(column);
                // A row that some runs do not have makes no figure.
                let rows = if rows.len() == runs.count() { &rows[..] } else { &[] };
                figure::told(rows, &line.names, line.statistic)
            });
            let counts = self.columns.iter().flat_map(|column| {
                rows(column).into_iter().filter_map(|row| figure::samples(row, &line.names))
            });
            let n = match (counts.clone().min(), counts.max()) {
                (Some(low), Some(high)) if low == high => format!("{} x {low}", runs.count()),
                (Some(low), Some(high)) => format!("{} x {low} to {high}", runs.count()),
                _ => runs.count().to_string(),
            };
            let cells: Vec<String> = cells.chain([n]).collect();
            // Writing to a String does not fail.
            let _ = writeln!(text, "| {} | {} |", line.title, cells.join(" | "));
        }
        text
    }

    fn head(&self) -> String {
        let titles: Vec<&str> = self.columns.iter().map(|column| column.title).collect();
        format!("| | {} | n |\n|{}\n", titles.join(" | "), " --- |".repeat(titles.len() + 2))
    }

    /// Whether a text is this table, of any runs: its headings and lines, and figures in its cells.
    ///
    /// # Errors
    ///
    /// The first difference, in a line.
    pub fn is_form_of(&self, text: &str) -> Result<(), String> {
        let body = text.strip_prefix(&self.head()).ok_or("its headings are others")?;
        let lines: Vec<&str> = body.lines().collect();
        if lines.len() != self.lines.len() {
            return Err(format!("it has {} lines, not {}", lines.len(), self.lines.len()));
        }
        for (line, text) in self.lines.iter().zip(lines) {
            let cells = text.strip_prefix(&format!("| {} | ", line.title));
            let cells = cells.and_then(|cells| cells.strip_suffix(" |"));
            let cells: Vec<&str> = cells
                .ok_or_else(|| format!("no line '{}' stands here", line.title))?
                .split(" | ")
                .collect();
            let Some((n, cells)) = cells.split_last() else { continue };
            let is_count = n.chars().all(|c| c.is_ascii_digit() || " xto".contains(c));
            if cells.len() != self.columns.len() || !is_count {
                return Err(format!("'{}' has other cells", line.title));
            }
            if let Some(cell) = cells.iter().find(|cell| !figure::is_one(cell)) {
                return Err(format!("'{cell}' of '{}' is no figure of `make figures`", line.title));
            }
        }
        Ok(())
    }
}
