//! A record as a report for the terminal.
//!
//! The short report has, of all experiments together if there are several, whether this host is affected and what to
//! do. Then it has for each experiment its other conclusions in a few lines; the medians of the most important
//! metrics, one line for each metric, for the combination of parameters that the conclusions are about; what was
//! skipped and why; and every check that failed.
//!
//! The full report has all conclusions and the parameters that all rows share. For each combination of parameters
//! (each order, for example) it has one table of every metric and variant with percentiles and the ratio to
//! [`BASELINE`] on the same backend, then counters, checks and findings; and at the end the medians of all metrics.
//! Both are plain ASCII, at most 80 columns wide if the names allow it.

use std::fmt;

#[cfg(doc)]
use mayfly_record::BASELINE;
use mayfly_record::{Backend, Description, Goal, MetricDescription, Record, ResultRow};

use crate::group::Grouping;
use crate::text::{self, Style};
use crate::{heading, medians, metrics, passes, percentiles, tallies, verdicts};

/// A record laid out for a terminal or a file, by its [`Display`](fmt::Display).
pub struct Report<'a> {
    record: &'a Record,
    style: Style,
    full: bool,
}

impl<'a> Report<'a> {
    /// A report on `record`. Metrics stand in the order in which it describes them, and those that it does not
    /// describe behind them in alphabetical order.
    pub fn new(record: &'a Record) -> Self {
        Self { record, style: Style { colour: false, width: text::WIDTH }, full: false }
    }

    /// Whether to show everything that the record has; by default, what it comes to and the medians.
    #[must_use]
    pub fn full(mut self, full: bool) -> Self {
        self.full = full;
        self
    }

    /// Whether to use terminal colours; not by default.
    #[must_use]
    pub fn colour(mut self, colour: bool) -> Self {
        self.style = Style { colour, ..self.style };
        self
    }

    /// How many columns a line may have; [`WIDTH`](crate::WIDTH) by default.
    #[must_use]
    pub fn width(mut self, width: usize) -> Self {
        self.style = Style { width, ..self.style };
        self
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        heading::write(f, self.record, self.style)?;
        let mut names: Vec<&str> = Vec::new();
        for row in &self.record.results {
            if !names.contains(&row.experiment.as_str()) {
                names.push(&row.experiment);
            }
        }
        let known = |name: &str| self.record.experiments.iter().find(|e| e.name == name);
        // One by itself says so first.
        let verdicts = !self.full && names.len() > 1;
        if verdicts {
            verdicts::write(f, names.iter().filter_map(|name| known(name)), self.style)?;
        }
        for name in names {
            let rows = self.record.results.iter().filter(|row| row.experiment == name);
            let (known, rows, style) = (known(name), rows.collect(), self.style);
            let (goal, full) = (self.record.goal, self.full);
            Section { name, known, goal, rows, style, full, verdicts }.fmt(f)?;
        }
        if !self.full && !self.record.results.is_empty() {
            let more =
                "--full shows every combination of parameters, percentiles, counters and checks.";
            writeln!(f, "\n{}", self.style.faint(&self.style.wrapped(more)))?;
        }
        Ok(())
    }
}

/// The part of a report that is about one experiment.
struct Section<'a> {
    name: &'a str,
    known: Option<&'a Description>,
    goal: Option<Goal>,
    rows: Vec<&'a ResultRow>,
    style: Style,
    full: bool,
    /// Whether the verdicts stand above all sections.
    verdicts: bool,
}

impl fmt::Display for Section<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (skipped, measured): (Vec<_>, Vec<_>) =
            self.rows.iter().copied().partition(|row| row.skipped.is_some());
        let declared = metrics::declared(self.known);
        let metrics = metrics::measured(declared, &measured);
        let grouping = Grouping::of(measured);

        writeln!(f)?;
        let summary = self.known.map(|e| format!(": {}", e.summary)).unwrap_or_default();
        let title = self.style.wrapped(&format!("{}{summary}", self.name));
        writeln!(f, "{}", title.replacen(self.name, &self.style.strong(self.name), 1))?;
        for line in self.answer() {
            writeln!(f, "{}", self.style.item(line))?;
        }
        if let Some(line) = self.known.and_then(|known| passes::told(known, self.goal)) {
            writeln!(f, "{}", self.style.item(&line))?;
        }
        if self.full {
            for line in grouping.shared_params() {
                writeln!(f, "{}", self.style.faint(&self.style.wrapped(&line)))?;
            }
            for group in &grouping.groups {
                percentiles::write(f, group, &metrics, self.style)?;
                tallies::write(f, group, self.style)?;
            }
            if medians::are_several(&grouping.groups) {
                writeln!(f)?;
                medians::write(f, &grouping.groups, &metrics, self.style)?;
            }
            self.write_legend(f, declared, &metrics)?;
        } else {
            let headlines = metrics::headlines(declared, &metrics);
            let answered_by = self.known.map(|known| &known.answered_by);
            medians::write(f, grouping.that_answers(answered_by), &headlines, self.style)?;
            for group in &grouping.groups {
                tallies::write_failed(f, group, self.style)?;
            }
        }
        if self.full && !skipped.is_empty() {
            writeln!(f)?;
        }
        write_skipped(f, &skipped, self.style)
    }
}

impl Section<'_> {
    /// What it comes to, but for what stands above all sections.
    fn answer(&self) -> impl Iterator<Item = &String> {
        let known = self.known.into_iter();
        known.flat_map(|known| {
            known.answer.iter().filter(|line| !self.verdicts || !known.verdict.contains(line))
        })
    }

    /// What each metric means.
    fn write_legend(
        &self,
        f: &mut fmt::Formatter<'_>,
        declared: &[MetricDescription],
        metrics: &[&str],
    ) -> fmt::Result {
        let shown = || declared.iter().filter(|metric| metrics.contains(&metric.name.as_str()));
        let Some(width) = shown().map(|metric| metric.name.len()).max() else { return Ok(()) };
        writeln!(f)?;
        for metric in shown() {
            let (first, rest) = (format!("  {:width$}  ", metric.name), " ".repeat(width + 4));
            let line = self.style.filled(&metric.summary, &first, &rest);
            writeln!(f, "{}", self.style.faint(&line))?;
        }
        Ok(())
    }
}

/// Why rows are missing: one line for each backend and reason.
fn write_skipped(f: &mut fmt::Formatter<'_>, rows: &[&ResultRow], style: Style) -> fmt::Result {
    let mut reasons: Vec<(Backend, &str, Vec<&str>)> = Vec::new();
    for row in rows {
        let why = row.skipped.as_deref().unwrap_or_default();
        match reasons
            .iter_mut()
            .find(|(backend, reason, _)| (*backend, *reason) == (row.backend, why))
        {
            Some((_, _, variants)) if variants.contains(&row.variant.as_str()) => {}
            Some((_, _, variants)) => variants.push(&row.variant),
            None => reasons.push((row.backend, why, vec![&row.variant])),
        }
    }
    for (backend, why, variants) in reasons {
        let line = format!("skipped on {backend}: {}: {why}", variants.join(", "));
        writeln!(f, "{}", style.wrapped(&line))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
