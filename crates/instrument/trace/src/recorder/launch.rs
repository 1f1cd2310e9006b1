//! What is to be recorded of a program that is started for it, and what comes of it.

use std::ffi::OsString;
use std::path::PathBuf;

use super::follow::Delay;
use crate::record::Trace;
use crate::usdt::Probe;

/// What to record.
#[derive(Clone, Debug, Default)]
pub struct Launch {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Where its output goes.
    pub output: Output,
    /// A call that is delayed, for a proof. A signal that asks this process to end then kills the program.
    pub delay: Option<Delay>,
    /// What marks when the time begins that the start is counted from.
    pub marker: Option<Mark>,
}

/// What marks the beginning of a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// This file is written to, or created.
    File(PathBuf),
    /// The program comes to this probe.
    Probe(Probe),
}

/// Where a program's output goes, and its input comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// Where that of this process does.
    #[default]
    Untouched,
    /// Nowhere.
    Null,
}

/// What was recorded.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The record, without host, phases and stalls.
    pub trace: Trace,
    /// Whether this process was asked to end meanwhile.
    pub was_interrupted: bool,
}
