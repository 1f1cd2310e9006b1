//! Samples and their order statistics.
//!
//! All samples are kept and every percentile is exact. A histogram with three significant figures
//! would already be off by 0.1 %, and with medians below a microsecond that stand 50 ns apart its buckets
//! would have to be so fine that keeping the samples, eight bytes each, is both smaller and exact: an
//! experiment has thousands of them, not billions.

use std::time::Duration;

use crate::bootstrap;
use crate::summary::Summary;
use crate::unit::Unit;

/// A duration in nanoseconds; those beyond `u64::MAX` ns (584 years) are that.
pub fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The nearest-rank percentile, in thousandths, of values that are sorted: the smallest value that at least that share of the
/// values does not exceed. It is always one of the values, never one between two. Nothing has none.
pub fn nearest_rank(sorted: &[u64], thousandths: usize) -> Option<u64> {
    let rank = (sorted.len() * thousandths).div_ceil(1000).max(1);
    sorted.get(rank - 1).copied()
}

/// Durations of one operation, in nanoseconds, in the order they were measured; or numbers of something.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    values: Vec<u64>,
    /// Where each round that is over ends.
    rounds: Vec<usize>,
    unit: Unit,
}

impl Samples {
    /// Room for `count` samples, so that recording these many does not allocate between
    /// measurements.
    pub fn with_capacity(count: usize) -> Self {
        Self { values: Vec::with_capacity(count), ..Self::default() }
    }

    /// Numbers, counted in `unit`.
    pub fn of(unit: Unit, values: impl IntoIterator<Item = u64>) -> Self {
        Self { values: values.into_iter().collect(), rounds: Vec::new(), unit }
    }

    /// What was counted in `unit` in each round, one after the other.
    pub fn by_round<R: IntoIterator<Item = u64>>(
        unit: Unit,
        rounds: impl IntoIterator<Item = R>,
    ) -> Self {
        let mut samples = Self { unit, ..Self::default() };
        for round in rounds {
            samples.values.extend(round);
            samples.end_round();
        }
        samples
    }

    /// Adds one sample. Durations beyond `u64::MAX` ns (584 years) are recorded as that.
    pub fn record(&mut self, duration: Duration) {
        self.record_ns(nanoseconds(duration));
    }

    /// Adds one sample, in nanoseconds.
    pub fn record_ns(&mut self, nanoseconds: u64) {
        self.values.push(nanoseconds);
    }

    /// Ends a round: what was recorded in it is not independent of each other, as it is of what comes after.
    pub fn end_round(&mut self) {
        if self.rounds.last().copied().unwrap_or(0) < self.values.len() {
            self.rounds.push(self.values.len());
        }
    }

    /// The samples of each round, in the order in which they were measured; all in one where no round was ended.
    pub fn rounds(&self) -> Vec<&[u64]> {
        let ends = self.rounds.iter().copied().chain([self.values.len()]);
        let mut begin = 0;
        let round = |end| {
            let round = &self.values[begin..end];
            begin = end;
            round
        };
        ends.map(round).filter(|round| !round.is_empty()).collect()
    }

    /// Samples whose rounds are known.
    pub fn of_rounds<'a>(unit: Unit, rounds: impl IntoIterator<Item = &'a [u64]>) -> Self {
        let mut samples = Self { unit, ..Self::default() };
        for round in rounds {
            samples.values.extend_from_slice(round);
            samples.end_round();
        }
        samples
    }

    /// How many samples there are.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The order statistics, or nothing if nothing was measured. A percentile that is not carried by so many samples is
    /// left out: p90 by fewer than 30, p99 by fewer than 300.
    ///
    /// A percentile is that of [`nearest_rank`].
    pub fn summary(&self) -> Option<Summary> {
        let mut sorted = self.values.clone();
        sorted.sort_unstable();
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let carried = |thousandths, least| {
            (sorted.len() >= least).then(|| nearest_rank(&sorted, thousandths)).flatten()
        };
        let rounds = self.rounds();
        let sum: u128 = sorted.iter().map(|&ns| u128::from(ns)).sum();
        Some(Summary {
            unit: self.unit.clone(),
            count: sorted.len() as u64,
            min,
            p50: nearest_rank(&sorted, 500)?,
            p50_interval: bootstrap::interval(&rounds),
            rounds: rounds.len() as u64,
            halves: halves(&rounds, |round, _| round % 2 == 0),
            drift: halves(&rounds, |round, count| round < count / 2),
            p90: carried(900, 30),
            p99: carried(990, 300),
            max,
            mean: sum as f64 / sorted.len() as f64,
        })
    }
}

/// Rounds of which either half can have a median to speak of.
const ENOUGH_FOR_HALVES: usize = 12;

/// How many times as large the median of one half of the rounds is as that of the other, or the other way round,
/// whichever is more than once. `is_first` says of a round's number, and how many there are, which half it is of.
fn halves(rounds: &[&[u64]], is_first: impl Fn(usize, usize) -> bool) -> Option<f64> {
    let median = |first: bool| {
        let of_half = (0..).zip(rounds).filter(|(at, _)| is_first(*at, rounds.len()) == first);
        let mut samples: Vec<u64> = of_half.flat_map(|(_, round)| round.iter().copied()).collect();
        samples.sort_unstable();
        nearest_rank(&samples, 500)
    };
    let (one, other) = (median(true)?, median(false)?);
    let is_enough = rounds.len() >= ENOUGH_FOR_HALVES && one.min(other) > 0;
    is_enough.then(|| one.max(other) as f64 / one.min(other) as f64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn samples(values: &[u64]) -> Samples {
        let mut samples = Samples::with_capacity(values.len());
        for &ns in values {
            samples.record_ns(ns);
        }
        samples
    }

    /// The definition, by counting: the smallest sample not below so many thousandths of all.
    fn naive(values: &[u64], thousandths: usize) -> u64 {
        let enough = |&limit: &u64| {
            values.iter().filter(|&&value| value <= limit).count() * 1000
                >= thousandths * values.len()
        };
        values.iter().copied().filter(enough).min().unwrap()
    }

    proptest! {
        #[test]
        fn percentiles_are_those_of_the_definition(
            values in prop::collection::vec(prop_oneof![0..50_u64, any::<u64>()], 1..600),
        ) {
            let mut sorted = values.clone();
            sorted.sort_unstable();
            for thousandths in [1, 10, 501, 999, 1000] {
                prop_assert_eq!(nearest_rank(&sorted, thousandths), Some(naive(&values, thousandths)));
            }
            let summary = samples(&values).summary().unwrap();
            prop_assert_eq!(summary.count, values.len() as u64);
            prop_assert_eq!(summary.min, *values.iter().min().unwrap());
            prop_assert_eq!(summary.p50, naive(&values, 500));
            prop_assert_eq!(summary.p90, (values.len() >= 30).then(|| naive(&values, 900)));
            prop_assert_eq!(summary.p99, (values.len() >= 300).then(|| naive(&values, 990)));
            prop_assert_eq!(summary.max, *values.iter().max().unwrap());
            let mean = values.iter().map(|&v| v as f64 / values.len() as f64).sum::<f64>();
            prop_assert!((summary.mean - mean).abs() <= mean * 1e-9);
        }
    }

    #[test]
    fn medians_one_nanosecond_apart_stay_apart() {
        let median = |ns| samples(&[ns; 999]).summary().unwrap().p50;
        assert_eq!(median(123_457) - median(123_456), 1);
    }

    #[test]
    fn numbers_of_things_say_so() {
        let summary = Samples::of(Unit::Count, [3, 1, 2]).summary().unwrap();
        assert_eq!((summary.unit.clone(), summary.p50, summary.max), (Unit::Count, 2, 3));
        assert_eq!(serde_json::to_value(&summary).unwrap()["unit"], "count");
        assert_eq!(serde_json::from_str::<Unit>("\"count\"").unwrap(), Unit::Count);
    }

    #[test]
    fn rounds_are_as_they_were_ended_and_empty_ones_are_none() {
        let mut samples = samples(&[1, 2]);
        assert_eq!(samples.rounds(), [&[1, 2][..]]);
        samples.end_round();
        samples.end_round();
        samples.record_ns(3);
        assert_eq!(samples.rounds(), [&[1, 2][..], &[3]]);
        assert_eq!(samples.summary().unwrap().rounds, 2);
        assert!(Samples::default().rounds().is_empty());
        let all = Samples::by_round(Unit::Count, [vec![7], vec![], vec![8, 9]]);
        assert_eq!(all.rounds(), [&[7][..], &[8, 9]]);
        assert_eq!(all.summary().unwrap().unit, Unit::Count);
    }

    #[test]
    fn a_variant_is_measured_against_itself_round_by_round_and_half_by_half() {
        let halves = |of: fn(u64) -> u64, count| {
            let mut samples = Samples::default();
            for round in 0..count {
                samples.record_ns(of(round));
                samples.end_round();
            }
            let summary = samples.summary().unwrap();
            (summary.halves, summary.drift)
        };
        assert_eq!(halves(|round| 100 + 50 * (round % 2), 12), (Some(1.5), Some(1.0)));
        assert_eq!(halves(|round| 100 + 50 * (round / 6), 12), (Some(1.0), Some(1.5)));
        assert_eq!(halves(|_| 100, 12), (Some(1.0), Some(1.0)));
        assert_eq!(halves(|_| 100, 11), (None, None));
        assert_eq!(halves(|_| 0, 12), (None, None));
    }

    #[test]
    fn nothing_measured_gives_no_summary() {
        assert!(Samples::default().is_empty());
        assert_eq!(Samples::default().summary(), None);
        assert_eq!(nearest_rank(&[], 500), None);
    }

    #[test]
    fn a_duration_beyond_the_counter_is_recorded_as_the_largest() {
        let mut samples = Samples::default();
        samples.record(Duration::MAX);
        assert_eq!(samples.summary().unwrap().max, u64::MAX);
    }
}
