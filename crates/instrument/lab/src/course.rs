//! A run under way: its rows so far, also for a signal handler that ends it early.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mayfly_record::{Passes, ResultRow};

use crate::undo::Undo;

/// A run under way. Clones are of the same run.
#[derive(Clone, Debug, Default)]
pub struct Course {
    /// What it has changed on its host.
    pub undo: Undo,
    so_far: Arc<Mutex<Outcome>>,
}

/// What a run came to, or has come to so far.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The rows of every experiment that is done.
    pub rows: Vec<ResultRow>,
    /// Experiments that failed, and why, each in one line.
    pub failures: Vec<Failure>,
    /// The experiment that runs, if one does.
    pub under_way: Option<&'static str>,
    /// How often experiments were gone through, by name, where more than once was wanted.
    pub passes: BTreeMap<&'static str, Passes>,
}

/// An experiment that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its name.
    pub experiment: &'static str,
    /// Why it failed, in one line.
    pub why: String,
}

impl Course {
    /// What it has come to so far.
    pub fn outcome(&self) -> Outcome {
        self.so_far().clone()
    }

    pub(crate) fn begin(&self, experiment: &'static str) {
        self.so_far().under_way = Some(experiment);
    }

    /// What the experiment that has begun has come to so far, in place of what was kept of it before.
    pub(crate) fn keep(&self, rows: Vec<ResultRow>, passes: Option<Passes>) {
        let mut so_far = self.so_far();
        let Some(experiment) = so_far.under_way else { return };
        so_far.rows.retain(|row| row.experiment != experiment);
        so_far.rows.extend(rows);
        so_far.passes.extend(passes.map(|passes| (experiment, passes)));
    }

    /// The experiment that has begun is over.
    pub(crate) fn end(&self, done: Result<(), String>) {
        let mut so_far = self.so_far();
        let Some(experiment) = so_far.under_way.take() else { return };
        if let Err(why) = done {
            so_far.failures.push(Failure { experiment, why });
        }
    }

    pub(crate) fn add(&self, rows: impl IntoIterator<Item = ResultRow>) {
        self.so_far().rows.extend(rows);
    }

    fn so_far(&self) -> MutexGuard<'_, Outcome> {
        self.so_far.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outcome {
    /// Why it is not all that was asked for, in one line, if it is not.
    pub fn partial(&self) -> Option<String> {
        let failed = |Failure { experiment, why }: &Failure| format!("{experiment}: {why}");
        let under_way = self.under_way.map(|name| format!("{name} was not finished"));
        let all: Vec<String> = self.failures.iter().map(failed).chain(under_way).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}
