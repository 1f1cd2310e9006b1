//! Two records, metric by metric: what is slower, what is faster, and what cannot be told.
//!
//! # What is called different
//!
//! Medians of two runs differ for reasons that have nothing to do with what was changed: where the program and its
//! memory lie, which CPUs it got, and what else ran. Rounds of one run do not show that, so a test by rounds alone would
//! call almost everything different. Therefore a metric has a *margin*, within which nothing is claimed: a tenth, or as
//! much as the metric differed from itself within either run (every other round beside the rest, the first half beside
//! the second), whichever is most. A metric that is not *steady* (the middle half of its rounds spans more than 8 %,
//! in either run) has at least the margin that either run as a whole asks for (*noisy host*).
//!
//! The ratio of the medians has a standard error, found by resampling whole rounds on both sides (samples of one round
//! are not independent). A metric is slower or faster where its ratio lies beyond its margin by so much that chance would
//! do that in one of a hundred comparisons *of all metrics together* at most: the p-values are corrected for their number
//! by Holm's method (Holm, "A Simple Sequentially Rejective Multiple Test Procedure", 1979). Below six rounds on either
//! side nothing can be told.

pub(crate) mod pairs;
pub(crate) mod shown;
mod statistics;

use mayfly_record::{Record, ResultRow, Unit};

use crate::noise;
use pairs::{Mismatch, Pair};
use statistics::{Change, holm};

/// The chance that anything is called different where nothing is, at most.
const ALPHA: f64 = 0.01;

/// The least margin.
const MARGIN: f64 = 1.1;

/// Two records side by side.
pub struct Comparison<'a> {
    base: &'a Record,
    new: &'a Record,
    lines: Vec<Line<'a>>,
    /// What only one of them has.
    alone: Vec<String>,
}

/// One metric of two rows.
pub struct Line<'a> {
    /// The row of the record that is compared with.
    pub base: &'a ResultRow,
    /// The row that is compared.
    pub new: &'a ResultRow,
    /// The metric's name.
    pub metric: &'a str,
    /// What is in it.
    pub unit: &'a Unit,
    /// How many times the base's median the new one is; none where either is 0.
    pub ratio: Option<f64>,
    /// Where that lies, at 95 %.
    pub interval: Option<[f64; 2]>,
    /// Whether its rounds hardly differ, in both runs.
    pub is_steady: bool,
    /// What it has to be beyond.
    pub margin: f64,
    /// What can be said.
    pub verdict: Verdict,
}

/// What can be said of a metric in two records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// More time, beyond doubt; or more of what is counted.
    More,
    /// Less, beyond doubt.
    Less,
    /// It may be the same.
    CannotTell,
}

impl Verdict {
    /// The word for it, for a metric in `unit`.
    pub fn word(self, unit: &Unit) -> &'static str {
        match (self, unit) {
            (Self::More, Unit::Nanoseconds) => "slower",
            (Self::Less, Unit::Nanoseconds) => "faster",
            (Self::More, _) => "more",
            (Self::Less, _) => "fewer",
            (Self::CannotTell, _) => "cannot tell",
        }
    }
}

impl Line<'_> {
    /// Whether it takes longer, beyond doubt.
    pub fn is_regression(&self) -> bool {
        self.verdict == Verdict::More && *self.unit == Unit::Nanoseconds
    }

    /// Whether it takes less time, beyond doubt.
    pub fn is_improvement(&self) -> bool {
        self.verdict == Verdict::Less && *self.unit == Unit::Nanoseconds
    }
}

impl<'a> Comparison<'a> {
    /// Compares `new` with `base`.
    ///
    /// # Errors
    ///
    /// They ran with different parameters.
    pub fn of(base: &'a Record, new: &'a Record) -> Result<Self, Mismatch> {
        let (pairs, alone) = pairs::pairs(base, new)?;
        let noisy = [base, new].into_iter().filter_map(noise::bound).fold(MARGIN, f64::max);
        let (mut lines, changes): (Vec<Line<'a>>, Vec<Option<Change>>) =
            pairs.iter().flat_map(|pair| compared(pair, noisy)).unzip();
        let p_values: Vec<f64> =
            changes.iter().map(|change| change.as_ref().map_or(1.0, Change::p_value)).collect();
        for ((line, change), p_value) in lines.iter_mut().zip(&changes).zip(holm(&p_values)) {
            if let Some(change) = change.as_ref().filter(|_| p_value < ALPHA) {
                line.verdict = if change.is_more() { Verdict::More } else { Verdict::Less };
            }
        }
        Ok(Self { base, new, lines, alone })
    }

    /// Every metric that both have, in the order of the base's rows.
    pub fn lines(&self) -> &[Line<'a>] {
        &self.lines
    }

    /// What of their hosts differs that figures hang on, each in a few words.
    pub fn differences_of_hosts(&self) -> Vec<String> {
        self.base.host.differences(&self.new.host)
    }
}

/// The metrics that both rows have, with `noisy` as the margin of those that are not steady.
fn compared<'a>(pair: &Pair<'a>, noisy: f64) -> Vec<(Line<'a>, Option<Change>)> {
    let (base, new) = (pair.base, pair.new);
    let both =
        base.metrics.iter().filter_map(|(name, of)| Some((name, of, new.metrics.get(name)?)));
    both.filter(|(_, of, with)| of.unit == with.unit)
        .map(|(metric, of, with)| {
            let rounds = [base.rounds(metric), new.rounds(metric)];
            let is_steady = rounds.iter().all(|rounds| statistics::is_steady(rounds));
            let own = [of, with].into_iter().filter_map(|summary| summary.halves);
            let margin = own.fold(if is_steady { MARGIN } else { noisy }, f64::max);
            let change = Change::of(&rounds[0], &rounds[1], margin);
            let is_measured = of.p50 > 0 && with.p50 > 0;
            let line = Line {
                base,
                new,
                metric,
                unit: &of.unit,
                ratio: is_measured.then(|| with.p50 as f64 / of.p50 as f64),
                interval: change.as_ref().map(Change::interval),
                is_steady,
                margin: change.as_ref().map_or(margin, Change::margin),
                verdict: Verdict::CannotTell,
            };
            (line, change)
        })
        .collect()
}

#[cfg(test)]
mod tests;
