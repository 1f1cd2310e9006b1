//! What an experiment is, told to whoever shows its rows without knowing it.

use serde::{Deserialize, Serialize};

/// An experiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
