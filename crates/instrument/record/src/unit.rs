//! What numbers count.

use serde::{Deserialize, Serialize};

use crate::units;

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

impl Unit {
    /// A number with its unit, for a person.
    pub fn shown(&self, number: u64) -> String {
        match self {
            Self::Nanoseconds => units::duration(number),
            Self::Count => units::grouped(number),
            Self::Other(unit) => format!("{} {unit}", units::grouped(number)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_shown_with_what_it_counts() {
        assert_eq!(Unit::Nanoseconds.shown(6_130_000), "6.13 ms");
        assert_eq!(Unit::Count.shown(12_160), "12,160");
        assert_eq!(Unit::Other("lines".to_owned()).shown(1000), "1,000 lines");
    }
}
