//! The figures that a threshold is held against.

use std::fmt;

use mayfly_record::{BASELINE, Record, ResultRow, Summary, Unit, units};

use crate::value::whole;

/// A figure that is held against a threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Figure {
    /// In nanoseconds.
    Time(f64),
    /// Of what is counted, or has no unit.
    Number(f64),
    /// How many times another it is.
    Ratio(f64),
}

impl Figure {
    pub(super) fn of(
        record: &Record,
        row: &ResultRow,
        metric: &str,
        summary: &Summary,
        statistic: &str,
    ) -> Option<Self> {
        let number = match statistic {
            "ratio" => return ratio(record, row, metric, summary).map(Self::Ratio),
            "n" => return Some(Self::Number(summary.count as f64)),
            "mean" => summary.mean,
            "min" => summary.min as f64,
            "max" => summary.max as f64,
            "p90" => summary.p90? as f64,
            "p99" => summary.p99? as f64,
            _ => summary.p50 as f64,
        };
        let is_time = summary.unit == Unit::Nanoseconds;
        Some(if is_time { Self::Time(number) } else { Self::Number(number) })
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(ns) => f.write_str(&units::duration(whole(*ns))),
            Self::Number(number) => write!(f, "{number}"),
            Self::Ratio(times) => f.write_str(&units::ratio(*times)),
        }
    }
}

/// How many times Mayfly's median a row's is, where the two may be set in relation.
fn ratio(record: &Record, row: &ResultRow, metric: &str, summary: &Summary) -> Option<f64> {
    let is_beside = |other: &&ResultRow| {
        other.variant == BASELINE
            && (&other.experiment, other.backend, &other.params)
                == (&row.experiment, row.backend, &row.params)
    };
    let baseline = record.results.iter().find(is_beside)?.metrics.get(metric)?;
    let may = !row.uncompared.contains(metric) && baseline.p50 > 0 && baseline.unit == summary.unit;
    may.then(|| summary.p50 as f64 / baseline.p50 as f64)
}
