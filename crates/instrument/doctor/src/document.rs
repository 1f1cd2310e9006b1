//! An examination as JSON.

use mayfly_kvm::Verdict;
use mayfly_record::{Conditions, Host, ResultRow};
use serde::{Deserialize, Serialize};

use crate::examination::Examination;
use crate::finding::Finding;

/// The name of the form. Additive changes keep it.
pub const SCHEMA: &str = "mayfly.doctor/1";

/// What other tools read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: String,
    /// The host.
    pub host: Host,
    /// The length of a tick, in nanoseconds.
    pub tick_ns: u64,
    /// How long the examination took, in nanoseconds.
    pub took_ns: u64,
    /// How the host was meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Conditions>,
    /// Whether others took so much of the processors' time that times are longer for it.
    #[serde(default)]
    pub loaded: bool,
    /// What it comes to, the most important first.
    pub findings: Vec<Finding>,
    /// What is said of each pair of calls.
    pub pairs: Vec<PairSaid>,
    /// What was measured. Metrics are in nanoseconds.
    pub results: Vec<ResultRow>,
    /// What could not be measured, and why.
    pub failed: Vec<String>,
}

/// What is said of a pair of calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairSaid {
    /// The first call.
    pub after: String,
    /// The second, which may wait.
    pub call: String,
    /// `waits`, `does-not`, `unclear` or `unknown`.
    pub verdict: String,
    /// How much longer the second call usually takes right after the first. Absent where it does not wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ns: Option<u64>,
    /// What failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Document {
    /// All of `seen`.
    pub fn of(seen: &Examination) -> Self {
        let tick = seen.tick();
        let said = |pair: &mayfly_kvm::Pair| {
            let (verdict, wait) = match pair.verdict(tick) {
                Verdict::Waits(time) => ("waits", Some(time)),
                Verdict::DoesNot => ("does-not", None),
                Verdict::Unclear(time) => ("unclear", Some(time)),
                Verdict::Unknown => ("unknown", None),
            };
            PairSaid {
                after: pair.after.name().to_owned(),
                call: pair.call.name().to_owned(),
                verdict: verdict.to_owned(),
                wait_ns: wait.map(mayfly_record::nanoseconds),
                error: pair.error.as_ref().map(ToString::to_string),
            }
        };
        Self {
            schema: SCHEMA.to_owned(),
            host: seen.host.clone(),
            tick_ns: mayfly_record::nanoseconds(tick),
            took_ns: mayfly_record::nanoseconds(seen.took),
            conditions: seen.conditions.clone(),
            loaded: seen.load().is_some(),
            findings: seen.findings(),
            pairs: seen.pairs.iter().map(said).collect(),
            results: seen.record().results,
            failed: seen.failed(),
        }
    }

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
