//! A number of a metric, as it is shown.

use mayfly_record::{Unit, units};

/// A number with its unit.
pub(crate) fn value(number: u64, unit: &Unit) -> String {
    match unit {
        Unit::Nanoseconds => units::duration(number),
        Unit::Count => number.to_string(),
        Unit::Other(unit) => format!("{number} {unit}"),
    }
}
