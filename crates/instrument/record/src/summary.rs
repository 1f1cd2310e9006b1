//! The order statistics of a metric, as they stand in a record.

use serde::{Deserialize, Serialize};

use crate::unit::Unit;

/// The order statistics of one metric; percentiles are nearest-rank.
///
/// Reading one back checks that it can be one: samples there are, and they are in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct Summary {
    /// What the numbers count.
    pub unit: Unit,
    /// How many samples; never zero, since a metric is measured or it is not there.
    pub count: u64,
    /// The smallest.
    pub min: u64,
    /// Half of the samples are not above it.
    pub p50: u64,
    /// Where the median lies at 95 %, resampled by round; of six rounds and more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_interval: Option<[u64; 2]>,
    /// How many rounds the samples are of; samples of one round are not independent.
    #[serde(default)]
    pub rounds: u64,
    /// How many times as large the median of every other round is as that of the rest, or the other way round: what a
    /// ratio has to be beyond to mean anything here. Of twelve rounds and more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halves: Option<f64>,
    /// How many times as large the median of the first half of the rounds is as that of the second, or the other way
    /// round: whether the host changed meanwhile. Of twelve rounds and more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<f64>,
    /// Nine tenths of the samples are not above it; of 30 samples and more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p90: Option<u64>,
    /// All but a hundredth of the samples are not above it; of 300 samples and more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99: Option<u64>,
    /// The largest.
    pub max: u64,
    /// The arithmetic mean.
    pub mean: f64,
}

/// A summary as it stands in a file.
#[derive(Deserialize)]
struct Unchecked {
    unit: Unit,
    count: u64,
    min: u64,
    p50: u64,
    p50_interval: Option<[u64; 2]>,
    #[serde(default)]
    rounds: u64,
    halves: Option<f64>,
    drift: Option<f64>,
    p90: Option<u64>,
    p99: Option<u64>,
    max: u64,
    mean: f64,
}

impl TryFrom<Unchecked> for Summary {
    type Error = &'static str;

    fn try_from(file: Unchecked) -> Result<Self, Self::Error> {
        let Unchecked { unit, count, min, p50, p50_interval, rounds, halves, drift, .. } = file;
        let Unchecked { p90, p99, max, mean, .. } = file;
        if count == 0 {
            return Err("a metric of no samples");
        }
        let in_order = [Some(min), Some(p50), p90, p99, Some(max)].into_iter().flatten();
        if !in_order.is_sorted() {
            return Err("min, p50, p90, p99 and max out of order");
        }
        if mean < 0.0 {
            return Err("a negative mean");
        }
        if p50_interval.is_some_and(|[low, high]| ![min, low, high, max].is_sorted()) {
            return Err("a median's interval that is not between min and max");
        }
        if [halves, drift].into_iter().flatten().any(|ratio| ratio < 1.0) {
            return Err("halves whose ratio is below one");
        }
        Ok(Self { unit, count, min, p50, p50_interval, rounds, halves, drift, p90, p99, max, mean })
    }
}

impl Summary {
    /// How far from the median the interval goes in which it lies, at most to either side, as a share of it; of six
    /// rounds and more. A single nanosecond, or a single thing, is nothing: no clock shows less.
    pub fn half_width(&self) -> Option<f64> {
        let [low, high] = self.p50_interval?;
        let widest = self.p50.abs_diff(low).max(high.abs_diff(self.p50));
        if widest <= 1 {
            return Some(0.0);
        }
        Some(widest as f64 / self.p50.max(1) as f64)
    }
}

#[cfg(test)]
mod tests {
    use crate::samples::Samples;
    use crate::unit::Unit;

    #[test]
    fn half_the_width_is_the_longer_side_as_a_share_of_the_median() {
        let mut summary = Samples::of(Unit::Nanoseconds, [100, 200, 300]).summary().unwrap();
        assert_eq!(summary.half_width(), None, "of one round");
        summary.p50_interval = Some([190, 230]);
        assert_eq!(summary.half_width(), Some(0.15));
        summary.p50_interval = Some([199, 201]);
        assert_eq!(summary.half_width(), Some(0.0), "a clock's own");
    }
}
