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
}

/// A metric of an experiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricDescription {
    /// The name that rows have it by.
    pub name: String,
    /// What is timed, in one line: from where to where.
    pub summary: String,
}
