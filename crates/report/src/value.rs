//! A number of a metric, as it is shown.

use mayfly_record::{Unit, units};

/// A number with its unit.
pub(crate) fn value(number: u64, unit: &Unit) -> String {
    match unit {
        Unit::Nanoseconds => units::duration(number),
        Unit::Count => units::grouped(number),
        Unit::Other(unit) => format!("{number} {unit}"),
    }
}

/// A number without its fraction; 0 for what is below it.
#[expect(clippy::cast_sign_loss, reason = "what is below 0 becomes 0")]
pub(crate) fn whole(number: f64) -> u64 {
    number.round() as u64
}
