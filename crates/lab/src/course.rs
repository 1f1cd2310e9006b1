//! A run under way: what it has come to, for whoever ends it early.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mayfly_record::ResultRow;

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

    /// Of the experiment that has begun.
    pub(crate) fn end(&self, done: Result<Vec<ResultRow>, String>) {
        let mut so_far = self.so_far();
        let Some(experiment) = so_far.under_way.take() else { return };
        match done {
            Ok(rows) => so_far.rows.extend(rows),
            Err(why) => so_far.failures.push(Failure { experiment, why }),
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
