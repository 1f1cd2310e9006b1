//! What numbers count.

use serde::{Deserialize, Serialize};

/// What a metric's numbers count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Nanoseconds, `"ns"` in records.
    #[default]
    #[serde(rename = "ns")]
    Nanoseconds,
    /// Things, `"count"` in records.
    #[serde(rename = "count")]
    Count,
    /// A unit that a later version added.
    #[serde(untagged)]
    Other(String),
}
