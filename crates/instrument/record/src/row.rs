//! One row of a record.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::ser::{Error, SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::backend::Backend;
use crate::histogram;
use crate::samples::Samples;
use crate::summary::Summary;

/// The variant that reports compare all others with.
pub const BASELINE: &str = "mayfly";

/// Findings of a machine that was made up to count what it executes: the emulator's version, and the registers that tell
/// its processor from others.
pub const MACHINE: [&str; 2] = ["qemu", "registers"];

/// What there is when measured work begins: how many of each thing (pages that are mapped, tables, memslots), by name.
pub type State = BTreeMap<String, u64>;

/// What one variant of an experiment gave on one backend, with one set of parameters.
///
/// Built by chaining:
///
/// ```
/// use mayfly_record::{Backend, ResultRow, Samples};
///
/// let mut register = Samples::with_capacity(1);
/// register.record_ns(840);
/// let row = ResultRow::new("device-registration", Backend::Machine, "mayfly")
///     .param("order", "devices-first")
///     .param("devices", 8)
///     .metric("register", &register)
///     .counter("grace_periods", 0)
///     .check("reclaimed", true, "every replaced array was freed");
/// assert_eq!(row.metrics["register"].p50, 840);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResultRow {
    /// The experiment's name.
    pub experiment: String,
    /// Where it ran.
    pub backend: Backend,
    /// The variant's name.
    pub variant: String,
    /// Parameters it ran with, by name.
    #[serde(default)]
    pub params: BTreeMap<String, Value>,
    /// The states that measured work began from, by what begins. If there are several of one, that work did not begin alike
    /// each time.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub start: BTreeMap<String, BTreeSet<State>>,
    /// What was measured, by name. Names of what was modelled instead begin with `modelled_`.
    #[serde(default)]
    pub metrics: BTreeMap<String, Summary>,
    /// What the metrics were made of, by name: a list for each round, in the order in which they were measured.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        serialize_with = "in_one_line_each"
    )]
    pub samples: BTreeMap<String, Vec<Vec<u64>>>,
    /// The same of metrics that have more than [`MOST_SAMPLES`](Self::MOST_SAMPLES): a histogram for each round, of three
    /// significant digits, in the text form of an `HdrHistogram`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub histograms: BTreeMap<String, Vec<String>>,
    /// Metrics that are not to be set in relation to another row's: with more threads than processors, say, the time
    /// on the clock is the scheduler's.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub uncompared: BTreeSet<String>,
    /// What was counted over the whole row, by name.
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
    /// What was checked while it ran.
    #[serde(default)]
    pub checks: Vec<Check>,
    /// What was found that is neither good nor bad news: that an earlier design is wrong where it is known to be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// Why there is nothing here: the backend or variant could not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
}

/// Something a run checked beside measuring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What was checked.
    pub name: String,
    /// Whether it held.
    pub ok: bool,
    /// What was seen, in one line.
    #[serde(default)]
    pub detail: String,
}

/// Something a run found beside measuring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What it is about.
    pub name: String,
    /// What was seen, in one line.
    #[serde(default)]
    pub detail: String,
}

impl ResultRow {
    /// Samples of a metric that a record keeps one by one: what it keeps of a run is a few megabytes at most.
    pub const MOST_SAMPLES: usize = 20_000;

    /// A row with nothing in it yet.
    pub fn new(experiment: &str, backend: Backend, variant: &str) -> Self {
        Self {
            experiment: experiment.to_owned(),
            backend,
            variant: variant.to_owned(),
            params: BTreeMap::new(),
            start: BTreeMap::new(),
            metrics: BTreeMap::new(),
            samples: BTreeMap::new(),
            histograms: BTreeMap::new(),
            uncompared: BTreeSet::new(),
            counters: BTreeMap::new(),
            checks: Vec::new(),
            findings: Vec::new(),
            skipped: None,
        }
    }

    /// Adds a parameter.
    #[must_use]
    pub fn param(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.params.insert(name.to_owned(), value.into());
        self
    }

    /// Adds a state that `work` began from.
    #[must_use]
    pub fn began(mut self, work: &str, state: State) -> Self {
        self.start.entry(work.to_owned()).or_default().insert(state);
        self
    }

    /// Takes all figures away, and the samples that they were made of.
    #[must_use]
    pub fn without_figures(mut self) -> Self {
        self.metrics.clear();
        self.samples.clear();
        self.histograms.clear();
        self.uncompared.clear();
        self
    }

    /// Adds a metric, unless it has no samples: what was not measured is not there.
    #[must_use]
    pub fn metric(mut self, name: &str, samples: &Samples) -> Self {
        self.metrics.extend(samples.summary().map(|summary| (name.to_owned(), summary)));
        if !samples.is_empty() {
            let rounds = samples.rounds().into_iter().map(<[u64]>::to_vec).collect();
            self.samples.insert(name.to_owned(), rounds);
        }
        self
    }

    /// What a metric was made of, round by round: as measured, or with three significant digits where there were many.
    /// Nothing, where the record does not say.
    pub fn rounds(&self, metric: &str) -> Cow<'_, [Vec<u64>]> {
        match (self.samples.get(metric), self.histograms.get(metric)) {
            (Some(rounds), _) => Cow::Borrowed(rounds),
            (None, Some(rounds)) => Cow::Owned(histogram::decode(rounds).unwrap_or_default()),
            (None, None) => Cow::Borrowed(&[]),
        }
    }

    /// Turns the samples of metrics that have too many of them into histograms.
    #[must_use]
    pub fn condensed(mut self) -> Self {
        let many = |rounds: &Vec<Vec<u64>>| {
            rounds.iter().map(Vec::len).sum::<usize>() > Self::MOST_SAMPLES
        };
        let (condensed, samples) = self.samples.into_iter().partition(|(_, rounds)| many(rounds));
        self.samples = samples;
        let condensed: BTreeMap<String, Vec<Vec<u64>>> = condensed;
        for (metric, rounds) in condensed {
            let encoded = histogram::encode(rounds.iter().map(Vec::as_slice));
            self.histograms.extend(encoded.map(|encoded| (metric, encoded)));
        }
        self
    }

    /// Says that a metric is not to be set in relation to another row's.
    #[must_use]
    pub fn uncompared(mut self, name: &str) -> Self {
        self.uncompared.insert(name.to_owned());
        self
    }

    /// Adds a counter.
    #[must_use]
    pub fn counter(mut self, name: &str, count: u64) -> Self {
        self.counters.insert(name.to_owned(), count);
        self
    }

    /// Adds a check and what was seen.
    #[must_use]
    pub fn check(mut self, name: &str, ok: bool, detail: impl Into<String>) -> Self {
        self.checks.push(Check { name: name.to_owned(), ok, detail: detail.into() });
        self
    }

    /// Adds what was found, which is no check. Two records whose rows differ in a finding of [`MACHINE`] are not compared.
    #[must_use]
    pub fn finding(mut self, name: &str, detail: impl Into<String>) -> Self {
        self.findings.push(Finding { name: name.to_owned(), detail: detail.into() });
        self
    }

    /// Marks the row as not run, and why.
    #[must_use]
    pub fn skipped(mut self, why: impl Into<String>) -> Self {
        self.skipped = Some(why.into());
        self
    }
}

/// Lists of numbers, each written in one line.
fn in_one_line_each<S: Serializer>(
    samples: &BTreeMap<String, Vec<Vec<u64>>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let line = |rounds| serde_json::value::to_raw_value(rounds).map_err(S::Error::custom);
    let mut map = serializer.serialize_map(Some(samples.len()))?;
    for (name, rounds) in samples {
        map.serialize_entry(name, &line(rounds)?)?;
    }
    map.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_samples_are_kept_as_histograms_round_by_round() {
        let (mut many, mut few) = (Samples::default(), Samples::default());
        for round in 0..10 {
            for sample in 0..3_000 {
                many.record_ns(1_000_000 * (round + 1) + sample);
            }
            few.record_ns(round);
            many.end_round();
            few.end_round();
        }
        let whole = ResultRow::new("e", Backend::Machine, "v").metric("many", &many);
        let row = whole.clone().metric("few", &few).condensed();
        assert_eq!(row.samples.keys().collect::<Vec<_>>(), ["few"]);
        assert_eq!(row.metrics["many"], whole.metrics["many"], "exact all the same");
        let (exact, kept) = (whole.rounds("many"), row.rounds("many"));
        assert_eq!((kept.len(), kept[9].len()), (10, 3_000));
        for (exact, kept) in exact.concat().into_iter().zip(kept.concat()) {
            assert!(exact.abs_diff(kept) <= exact / 1000, "{exact} {kept}");
        }
        assert!(row.rounds("none").is_empty());
    }
}
