//! Numbers of a metric.

/// A number without its fraction; 0 for what is below it.
#[expect(clippy::cast_sign_loss, reason = "what is below 0 becomes 0")]
pub(crate) fn whole(number: f64) -> u64 {
    number.round() as u64
}
