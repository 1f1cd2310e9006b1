//! What a table is.

use std::fmt::Write;

use mayfly_record::Backend;
use serde_json::Value;

use crate::figure;
use crate::runs::Runs;

/// A table of one experiment's figures.
#[derive(Clone, Debug)]
pub struct Table {
    /// The document that it stands in, below the repository's root.
    pub document: &'static str,
    /// What its markers call it.
    pub name: &'static str,
    /// The arguments of `mayfly run` that measure it, of which the first names the experiment.
    pub arguments: &'static str,
    /// Parameters that its rows ran with, beside those that a line says.
    pub params: Vec<(&'static str, Value)>,
    /// Its columns beside the first.
    pub columns: Vec<Column>,
    /// Its lines below the headings.
    pub lines: Vec<Line>,
}

/// A variant.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// What stands above it.
    pub title: &'static str,
    /// Where it ran.
    pub backend: Backend,
    /// Its name.
    pub variant: &'static str,
}

/// A metric or a counter.
#[derive(Clone, Debug)]
pub struct Line {
    /// What stands before it.
    pub title: String,
    /// Names, of which the first is shown that a row has.
    pub names: Vec<&'static str>,
    /// What of it.
    pub statistic: Statistic,
    /// Parameters in place of the table's, where there are some.
    pub params: Option<Vec<(&'static str, Value)>>,
}

/// What of a metric is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistic {
    /// The median.
    Median,
    /// The 99th percentile, where so many samples carry it.
    P99,
    /// The longest.
    Longest,
}

impl Table {
    /// Whose figures it has.
    pub fn experiment(&self) -> &'static str {
        self.arguments.split(' ').next().unwrap_or_default()
    }

    /// How its document says what measures it.
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
                // What not every run has is no figure.
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

    /// Whether a text is this table, of whatever runs: its headings and lines, and figures in its cells.
    ///
    /// # Errors
    ///
    /// What is different, in a line.
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
