//! What the rows of an experiment mean, in a few sentences that the user can repeat.

use std::collections::BTreeMap;

use serde_json::Value;

/// What an experiment's rows mean, in about three to ten sentences.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// All sentences: what waits, and how long, on this host's KVM first; what Mayfly does instead; and what to do.
    pub lines: Vec<String>,
    /// The sentences that say whether this host is affected, and what to do.
    pub verdict: Vec<String>,
    /// The parameters of the rows that the answer is about.
    pub by: BTreeMap<String, Value>,
}

impl Answer {
    /// From a sentence about this host, sentences about designs, and advice. A sentence is `None` if its figures were not
    /// measured.
    pub(crate) fn of<const LINES: usize>(
        here: Option<String>,
        designs: [Option<String>; LINES],
        advice: Option<String>,
    ) -> Self {
        let verdict = here.iter().chain(&advice).cloned().collect();
        let lines = [here].into_iter().chain(designs).chain([advice]).flatten().collect();
        Self { lines, verdict, by: BTreeMap::new() }
    }

    /// The answer is about rows that ran with this value of a parameter.
    pub(crate) fn by(mut self, param: &str, value: impl Into<Value>) -> Self {
        self.by.insert(param.to_owned(), value.into());
        self
    }
}
