//! What a series comes to.

use serde::{Deserialize, Serialize};

use crate::shape::Shape;

/// By how much a law may miss a point that was held out, in parts of the time that was measured there.
pub const HELD_OUT_BOUND: f64 = 0.25;

/// A law, and how sure it is. It is about the numbers that were measured, and none beyond.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Law {
    /// The shape that fits best.
    #[serde(flatten)]
    pub shape: Shape,
    /// Others that fit as well, within what noise allows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Shape>,
    /// The form that fits best, where it is not the law because it is not sure that anything grows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsure: Option<Shape>,
    /// Where the exponent of a power lies, at 95 %. The shape has a field that is called as this one is.
    #[serde(default, rename = "exponent_interval", skip_serializing_if = "Option::is_none")]
    pub exponent: Option<[f64; 2]>,
    /// How many times as long the longest call takes as the shortest, at 95 %. Absent where nothing grows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growth: Option<[f64; 2]>,
    /// By how much it misses the point that was held out and is missed most, in parts of the time that was measured there.
    pub held_out: f64,
    /// It predicts all points that were held out within [`HELD_OUT_BOUND`]. If not, no law was found.
    pub holds: bool,
    /// The first number at which a call takes a millisecond. Absent where it does not, and where no law holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub millisecond: Option<u64>,
}
