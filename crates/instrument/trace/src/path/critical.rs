//! A critical path as it stands in the record, and the words for its pieces.

use std::fmt;

use mayfly_record::units::{duration, things};
use serde::{Deserialize, Serialize};

use crate::spent::Spent;

/// What something hung on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CriticalPath {
    /// What it leads to: `first entry`, `process gone`.
    pub to: String,
    /// When it begins.
    pub at: u64,
    /// How long it is.
    pub took: u64,
    /// Whether the thread that ended a wait was inferred somewhere, and not seen.
    #[serde(default)]
    pub inferred: bool,
    /// What it is made of, in order, without gaps; ten at the most.
    pub pieces: Vec<Piece>,
}

/// A part of a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// The thread that everything hung on. Of several in turns, the last.
    pub tid: i32,
    /// When that began.
    pub at: u64,
    /// How long it was so.
    pub took: u64,
    /// What it did.
    pub doing: Doing,
    /// How the time was spent, where that was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent: Option<Spent>,
}

/// What a thread did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Doing {
    /// It made this call.
    Call(String),
    /// It slept by its own wish: so often, and for so many nanoseconds each time.
    Sleeps {
        /// How often.
        times: u64,
        /// What it asked for the last time.
        each: u64,
    },
    /// It waited, in this function of the kernel, for something that is no thread of the program's, or was not seen.
    Waits(String),
    /// It ran code of its own.
    Own,
    /// It had begun to end, and gave up what it had; in this function of the kernel for most of the time, if one was seen.
    Ends(String),
    /// It made no call that is recorded, and did not run for most of the time.
    Off,
    /// Too short to be told apart: so many calls, by so many threads in turns.
    Short {
        /// Calls.
        calls: u64,
        /// Threads.
        threads: u64,
    },
}

impl CriticalPath {
    /// The path in a line, without its pieces.
    pub(crate) fn title(&self) -> String {
        let mut threads: Vec<i32> = self.pieces.iter().map(|piece| piece.tid).collect();
        threads.sort_unstable();
        threads.dedup();
        let inferred =
            if self.inferred { "; the thread that ended a wait is inferred, not seen" } else { "" };
        let (took, threads) = (duration(self.took), things(threads.len() as u64, "thread"));
        format!("critical path to {}: {took}, {threads}{inferred}", self.to)
    }
}

/// What was done, and how the time was spent where it was not all on a processor.
impl fmt::Display for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asks_to_sleep = matches!(self.doing, Doing::Sleeps { .. });
        // Many small parts are named by none.
        let has_words = |spent: &Spent| !spent.is_its_own() && !spent.to_string().is_empty();
        let Some(spent) = self.spent.filter(|spent| has_words(spent) && !asks_to_sleep) else {
            return self.doing.fmt(f);
        };
        match &self.doing {
            Doing::Call(_) | Doing::Waits(_) | Doing::Ends(_) | Doing::Sleeps { .. } => {
                write!(f, "{}; of it {spent}", self.doing)
            }
            // What did not run was no code of its own.
            Doing::Own | Doing::Off if spent.ran == 0 => spent.fmt(f),
            Doing::Own | Doing::Off => {
                write!(f, "its own code for {}, {spent}", duration(spent.ran))
            }
            Doing::Short { .. } => write!(f, "{} for {}, {spent}", self.doing, duration(spent.ran)),
        }
    }
}

impl fmt::Display for Doing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(name) => f.write_str(name),
            // How long may not have been seen.
            Self::Sleeps { times: 1, each: 0 } => f.write_str("sleeps by its own request"),
            Self::Sleeps { times, each: 0 } => write!(f, "polls: {times} sleeps"),
            Self::Sleeps { times: 1, each } => {
                write!(f, "sleeps by its own request, for {}", duration(*each))
            }
            Self::Sleeps { times, each } => {
                write!(f, "polls: {times} sleeps of {}", duration(*each))
            }
            Self::Waits(function) => {
                write!(f, "waits in {function}; no thread was seen to end the wait")
            }
            Self::Own | Self::Short { calls: 0, threads: 1 } => f.write_str("its own code"),
            Self::Ends(function) if function.is_empty() => {
                f.write_str("ends, and gives up what it has")
            }
            Self::Ends(function) => write!(f, "ends, and is in {function} most of the time"),
            Self::Off => f.write_str("it did not run"),
            Self::Short { calls, threads: 1 } => {
                write!(f, "its own code, and {}", things(*calls, "short call"))
            }
            Self::Short { calls, threads } => {
                let others = things(threads - 1, "other thread");
                let calls = things(*calls, "short call");
                write!(f, "in turns with {others}: their own code, and {calls}")
            }
        }
    }
}
