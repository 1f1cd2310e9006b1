//! Bounds that a figure must keep: one grammar for every command.
//!
//! ```text
//! device-registration.kvm.first_memslot.p50 > 1ms
//! ratio > 1.1
//! ```
//!
//! On the left stand names, joined by dots: experiment, backend, variant, metric, statistic, in this order. Any of them may
//! be left out, and then any name fits. A counter stands in the place of metric and statistic. The statistic is `p50` if
//! none is named. On the right stands a number; a time has one of the units `ns`, `us`, `ms` or `s`.

mod bound;
mod error;
mod figure;
mod names;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use mayfly_record::{Backend, Record, ResultRow};

use bound::{Bound, Comparison};
pub use error::ThresholdError;
pub use figure::Figure;
use names::{Named, Names};

/// A bound: what is on its wrong side is a failure.
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    names: Names,
    comparison: Comparison,
    bound: Bound,
    text: String,
}

/// A figure that is on the wrong side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What it is, and how much, in one line.
    pub what: String,
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Threshold {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Self, ThresholdError> {
        let no_comparison = || ThresholdError::NoComparison(text.to_owned());
        let at = text.find(['<', '>']).ok_or_else(no_comparison)?;
        let (names, rest) = text.split_at(at);
        let (comparison, number) = Comparison::begins(rest).ok_or_else(no_comparison)?;
        let (names, number) = (names.trim(), number.trim());
        if names.is_empty() {
            return Err(no_comparison());
        }
        let bound = Bound::parse(number).ok_or_else(|| ThresholdError::NoNumber {
            number: number.to_owned(),
            threshold: text.to_owned(),
        })?;
        Ok(Self { names: Names::new(names), comparison, bound, text: text.trim().to_owned() })
    }
}

impl Threshold {
    /// Whether a metric of an experiment's variant can be meant, which is a time or a count. What is no metric of any
    /// experiment may still be a counter, which nothing declares before it has run.
    ///
    /// # Errors
    ///
    /// It is named, and held against what it is not measured in.
    pub fn may_name(
        &self,
        experiment: &str,
        backend: Backend,
        variant: &str,
        (metric, is_time): (&str, bool),
    ) -> Result<bool, ThresholdError> {
        let names = [experiment, backend.name(), variant];
        let Some(Named { statistic, is_metric }) = self.names.of_metric(&names, metric, "p50")
        else {
            return Ok(false);
        };
        let figure = match statistic {
            "ratio" => Figure::Ratio(1.0),
            "n" => Figure::Number(1.0),
            _ if is_time => Figure::Time(1.0),
            _ => Figure::Number(1.0),
        };
        if is_metric {
            let what = format!("{}.{metric}.{statistic}", names.join("."));
            self.is_wrong(&what, figure).map(|_| true)
        } else {
            Ok(self.is_of_kind(figure))
        }
    }

    /// Whether a counter is named that is known before it is counted.
    ///
    /// # Errors
    ///
    /// It is named, and held against a time.
    pub fn may_name_the_counter(
        &self,
        experiment: &str,
        backend: Backend,
        variant: &str,
        counter: &str,
    ) -> Result<bool, ThresholdError> {
        let names = [experiment, backend.name(), variant];
        if !self.names.are(&names, counter) {
            return Ok(false);
        }
        let what = format!("{}.{counter}", names.join("."));
        self.is_wrong(&what, Figure::Number(0.0)).map(|_| true)
    }

    /// Whether it may name a counter that is not known beforehand: it is a number and has no statistic.
    pub fn may_name_a_counter(&self) -> bool {
        !self.names.end_in_a_statistic() && matches!(self.bound, Bound::Number(_))
    }

    /// What of `record` is on the wrong side.
    ///
    /// # Errors
    ///
    /// It names nothing in the record, or what it names is measured otherwise.
    pub fn violations(&self, record: &Record) -> Result<Vec<Violation>, ThresholdError> {
        let mut named = false;
        let mut violations = Vec::new();
        for row in &record.results {
            for (what, figure) in self.figures(record, row) {
                named = true;
                if self.is_wrong(&what, figure)? {
                    violations.push(Violation { what: format!("{what} is {figure}") });
                }
            }
        }
        if named { Ok(violations) } else { Err(self.names_nothing()) }
    }

    /// What stands on its left side.
    pub fn names(&self) -> &str {
        self.names.as_str()
    }

    /// The error that it names nothing.
    pub fn names_nothing(&self) -> ThresholdError {
        ThresholdError::NamesNothing { names: self.names.as_str().to_owned() }
    }

    /// Whether a ratio of two records' figures is meant, and is on the wrong side.
    ///
    /// # Errors
    ///
    /// It is meant, and held against a time.
    pub fn is_ratio_wrong(
        &self,
        row: &ResultRow,
        metric: &str,
        ratio: f64,
    ) -> Result<Option<bool>, ThresholdError> {
        let names = [row.experiment.as_str(), row.backend.name(), row.variant.as_str()];
        match self.names.of_metric(&names, metric, "ratio") {
            None => Ok(None),
            Some(Named { statistic: "ratio", .. }) => {
                self.is_wrong(self.names.as_str(), Figure::Ratio(ratio)).map(Some)
            }
            Some(_) => Err(ThresholdError::NoRatio(self.text.clone())),
        }
    }

    /// Whether it is what is too small that is on the wrong side.
    pub fn is_about_too_little(&self) -> bool {
        self.comparison.is_below()
    }

    /// What it names of a row, each with its figure.
    fn figures(&self, record: &Record, row: &ResultRow) -> Vec<(String, Figure)> {
        let names = [row.experiment.as_str(), row.backend.name(), row.variant.as_str()];
        let path = |end: &str| format!("{}.{end}", names.join("."));
        let mut figures = Vec::new();
        for (metric, summary) in &row.metrics {
            let Some(Named { statistic, is_metric }) = self.names.of_metric(&names, metric, "p50")
            else {
                continue;
            };
            let figure = Figure::of(record, row, metric, summary, statistic);
            // Of any metric those are meant that are held against what they are measured in.
            let figure = figure.filter(|figure| is_metric || self.is_of_kind(*figure));
            figures.extend(figure.map(|figure| (path(&format!("{metric}.{statistic}")), figure)));
        }
        for (counter, count) in &row.counters {
            if self.names.are(&names, counter) {
                figures.push((path(counter), Figure::Number(*count as f64)));
            }
        }
        figures
    }

    /// Whether the bound is in what a figure is in.
    fn is_of_kind(&self, figure: Figure) -> bool {
        matches!(figure, Figure::Time(_)) == matches!(self.bound, Bound::Time(_))
    }

    /// Whether a figure is on the wrong side, which a caller has found by the names; `what` is what errors call it.
    ///
    /// # Errors
    ///
    /// It is held against what it is not measured in.
    pub fn is_wrong(&self, what: &str, figure: Figure) -> Result<bool, ThresholdError> {
        let wrong_unit = |wants| ThresholdError::WrongUnit {
            threshold: self.text.clone(),
            what: what.to_owned(),
            wants,
        };
        let (number, bound) = match (figure, self.bound) {
            (Figure::Time(time), Bound::Time(bound)) => (time, bound),
            (Figure::Number(number) | Figure::Ratio(number), Bound::Number(bound)) => {
                (number, bound)
            }
            (Figure::Time(_), Bound::Number(_)) => {
                return Err(wrong_unit("is a time: write ns, us, ms or s"));
            }
            (_, Bound::Time(_)) => {
                return Err(wrong_unit("is not a time: write a number without a unit"));
            }
        };
        Ok(self.comparison.holds(number, bound))
    }
}
