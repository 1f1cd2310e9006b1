//! The description of an experiment, for programs that show its rows without knowing it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// The name that its rows have.
    pub name: String,
    /// What it measures, in one line.
    pub summary: String,
    /// Its metrics, in the order in which reports show them.
    #[serde(default)]
    pub metrics: Vec<MetricDescription>,
    /// What its rows come to, in lines that a person can repeat.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answer: Vec<String>,
    /// Those of the answer that say whether this host is affected, and what to do about it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verdict: Vec<String>,
    /// The parameters of those rows that the answer is of, and whose medians a short report shows.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub answered_by: BTreeMap<String, Value>,
    /// How often it was gone through, and what that came to; where more than once was wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passes: Option<Passes>,
}

/// How often an experiment was gone through.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Passes {
    /// Times; the rounds of all of them are in its rows, whose parameters are those of one.
    pub count: u32,
    /// Whether every headline's interval is as narrow as was wanted.
    pub reached: bool,
    /// The headline that is known the least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub widest: Option<Widest>,
}

/// A metric of a variant whose median is known the least.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Widest {
    /// The row and the metric.
    pub what: String,
    /// How far its interval goes to either side, as a share of the median; none below six rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_width: Option<f64>,
}

/// A metric of an experiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricDescription {
    /// The name that rows have it by.
    pub name: String,
    /// What is timed, in one line: from where to where.
    pub summary: String,
    /// Whether a short report shows it.
    #[serde(default)]
    pub headline: bool,
}
