//! Laws as JSON.

use mayfly_record::Host;
use serde::{Deserialize, Serialize};

use crate::law::Law;
use crate::pair::Pair;
use crate::series::Series;

/// The name of the form. Additive changes keep it.
pub const SCHEMA: &str = "mayfly.laws/1";

/// What other tools read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: String,
    /// The host.
    pub host: Host,
    /// The length of a tick, in nanoseconds, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tick_ns: Option<u64>,
    /// Samples of each point.
    pub rounds: u32,
    /// The seed of the order of the points.
    pub seed: u64,
    /// How long everything is left alone before a call, in nanoseconds, where its age is not what grows.
    pub settled_ns: u64,
    /// What was measured, in the order in which it was.
    pub laws: Vec<Entry>,
}

/// A pair, and its law.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The call, and what grows.
    #[serde(flatten)]
    pub pair: Pair,
    /// The samples.
    #[serde(flatten)]
    pub series: Series,
    /// The law of the time that the call takes. Absent where nothing was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub law: Option<Law>,
    /// The law of its work: the time in which the calling thread runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<Law>,
    /// Why nothing was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
}

impl Entry {
    /// How long a call sleeps at the point where it sleeps longest, in ticks, if that is half of one or more.
    pub fn sleeps(&self, tick_ns: u64) -> Option<f64> {
        let ticks = |slept: u64| slept as f64 / tick_ns as f64;
        let all = self.series.points.iter().map(|point| ticks(point.slept()));
        all.reduce(f64::max).filter(|ticks| *ticks >= 0.5)
    }
}

impl Document {
    /// The document, indented, with a final newline.
    ///
    /// # Panics
    /// Never: all of its maps have strings for keys, and no number of it is without a JSON form.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("a document has a JSON form");
        text.push('\n');
        text
    }
}
