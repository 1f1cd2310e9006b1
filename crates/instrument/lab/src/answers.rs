//! What the rows of an experiment come to, in a few lines that a person can repeat.

use std::collections::BTreeMap;

use serde_json::Value;

/// What an experiment's rows come to: three to ten sentences or so that a person can repeat.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// All of it: what waits, how long, on this host's KVM first; what Mayfly does instead; and what to do about it.
    pub lines: Vec<String>,
    /// Those of the lines that say whether this host is affected, and what to do.
    pub verdict: Vec<String>,
    /// The parameters of the rows that it is of.
    pub by: BTreeMap<String, Value>,
}

impl Answer {
    /// Of what is said of this host, what is said of designs, and what to do. What was not measured is not said.
    pub(crate) fn of<const LINES: usize>(
        here: Option<String>,
        designs: [Option<String>; LINES],
        advice: Option<String>,
    ) -> Self {
        let verdict = here.iter().chain(&advice).cloned().collect();
        let lines = [here].into_iter().chain(designs).chain([advice]).flatten().collect();
        Self { lines, verdict, by: BTreeMap::new() }
    }

    /// Of rows that ran with this.
    pub(crate) fn by(mut self, param: &str, value: impl Into<Value>) -> Self {
        self.by.insert(param.to_owned(), value.into());
        self
    }
}
