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
    /// Nine tenths of the samples are not above it.
    pub p90: u64,
    /// All but a hundredth of the samples are not above it.
    pub p99: u64,
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
    p90: u64,
    p99: u64,
    max: u64,
    mean: f64,
}

impl TryFrom<Unchecked> for Summary {
    type Error = &'static str;

    fn try_from(file: Unchecked) -> Result<Self, Self::Error> {
        let Unchecked { unit, count, min, p50, p90, p99, max, mean } = file;
        if count == 0 {
            return Err("a metric of no samples");
        }
        if !([min, p50, p90, p99, max].is_sorted()) {
            return Err("min, p50, p90, p99 and max out of order");
        }
        if mean < 0.0 {
            return Err("a negative mean");
        }
        Ok(Self { unit, count, min, p50, p90, p99, max, mean })
    }
}
