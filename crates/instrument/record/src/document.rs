//! The record of a run: one JSON document that `--json` writes and other tools read.
//!
//! Its shape is `mayfly.record/1`. Additions (new fields, metrics, units) keep the version: a reader ignores
//! what it does not know. A change that would make an older reader misunderstand takes the next one.

use serde::{Deserialize, Serialize};

use crate::conditions::Conditions;
use crate::description::Description;
use crate::goal::Goal;
use crate::host::Host;
use crate::row::{Check, ResultRow};

/// The schema's name, without its version.
pub(crate) const SCHEMA: &str = "mayfly.record";
/// The version that this code writes, and the highest that it reads.
pub(crate) const VERSION: u32 = 1;

/// What a run measured, and on what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    schema: String,
    /// The host it ran on.
    pub host: Host,
    /// How the host was while it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Conditions>,
    /// What was wanted beyond going once through everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<Goal>,
    /// The experiments that ran, in the order in which reports show them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub experiments: Vec<Description>,
    /// Why it is not all that was asked for, where the run came to an early end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<String>,
    /// One row for each experiment, backend, variant and set of parameters.
    pub results: Vec<ResultRow>,
}

impl Record {
    /// A record in the current schema. Metrics of many samples are kept as histograms.
    pub fn new(host: Host, results: Vec<ResultRow>) -> Self {
        Self {
            schema: format!("{SCHEMA}/{VERSION}"),
            host,
            conditions: None,
            goal: None,
            experiments: Vec::new(),
            partial: None,
            results: results.into_iter().map(ResultRow::condensed).collect(),
        }
    }

    /// Says what experiments it is about.
    #[must_use]
    pub fn describing(mut self, experiments: impl IntoIterator<Item = Description>) -> Self {
        self.experiments.extend(experiments);
        self
    }

    /// The checks that found something wrong, each with its row.
    pub fn failed_checks(&self) -> impl Iterator<Item = (&ResultRow, &Check)> {
        let checks = self.results.iter().flat_map(|row| row.checks.iter().map(move |c| (row, c)));
        checks.filter(|(_, check)| !check.ok)
    }

    /// The document, indented, with a final newline.
    ///
    /// # Panics
    ///
    /// Never: every map of a record has strings for keys, and no number of it is without a JSON form.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("a record has a JSON form");
        text.push('\n');
        text
    }
}
