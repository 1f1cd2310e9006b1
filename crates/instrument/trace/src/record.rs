//! The record of a trace: one document, `mayfly.trace/1`, that the command writes as JSON.
//!
//! Times are nanoseconds since the trace began (`at`), and lengths of time (`took`). Additions keep the version.

mod seen;

use std::fmt;

use mayfly_record::Host;
use serde::{Deserialize, Serialize};

use crate::gain::{Gain, Replay};
use crate::path::CriticalPath;
pub use seen::{Account, Call, From, Object, Process, Sample, Thread, Used, Wake};

/// What was seen of a program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// `mayfly.trace/1`.
    pub schema: String,
    /// The host; of the recorder alone, there is none yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// What recorded it.
    pub recorder: Recorder,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Whether the process ran before it was traced.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub attached: bool,
    /// How the program ended; absent if it was attached to, and goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<End>,
    /// From the beginning of the trace to its end, in nanoseconds.
    pub span: u64,
    /// What following cost the program.
    pub stops: Stops,
    /// Calls that were not kept, for there were too many.
    #[serde(default)]
    pub lost: u64,
    /// Events of tracefs that were overwritten before they were read.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub lost_events: u64,
    /// Processes, in the order in which they were first seen. The first is the program.
    pub processes: Vec<Process>,
    /// Threads, the same.
    pub threads: Vec<Thread>,
    /// Calls, in the order in which they began.
    pub calls: Vec<Call>,
    /// What threads waited in, or ran, when they were looked at.
    pub samples: Vec<Sample>,
    /// Waits whose end was seen, by tracefs: which thread woke which, in the order of these ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wakes: Vec<Wake>,
    /// What threads had of the processors, and when, in the order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accounts: Vec<Account>,
    /// For how long the limit of the program's control group had held it back by a moment, in nanoseconds of processor time, at
    /// each moment at which it was seen to grow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub throttled: Vec<(u64, u64)>,
    /// What else has to be said, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// When that first happened which was to mark the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marked: Option<u64>,
    /// From when the start is counted, if that is not the program's execution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<From>,
    /// The phases of the life, in the order in which they ended.
    #[serde(default)]
    pub phases: Vec<Phase>,
    /// The longest waits, longest first, and what is known of them.
    #[serde(default)]
    pub stalls: Vec<Stall>,
    /// What the start and the end of the VM's life hung on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub critical_paths: Vec<CriticalPath>,
    /// The life of each VM, if the program has entered several; then the phases and the critical paths above are of the
    /// VM that was entered first, up to the end of the program.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lives: Vec<Life>,
    /// What was replayed to know what remedies gain, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<Replay>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_nothing(number: &u64) -> bool {
    *number == 0
}

/// The version of [`Trace`].
pub const SCHEMA: &str = "mayfly.trace/1";

impl Trace {
    /// Takes away the calls that samples seem to be in of threads that make none: a thread that is made in a call has a copy
    /// of its maker's registers, and so of the call, and one that has begun to end keeps those of its last one.
    pub(crate) fn forget_inherited_calls(&mut self) {
        let Self { threads, samples, .. } = self;
        let makes_none = |one: &Sample| {
            threads.iter().any(|thread| {
                let has_ended = thread.ending.is_some_and(|ending| one.at > ending)
                    && thread.gone.is_none_or(|gone| one.at <= gone);
                thread.tid == one.tid && (thread.is_worker() || has_ended)
            })
        };
        for sample in samples.iter_mut().filter(|one| makes_none(one)) {
            sample.call = None;
        }
    }

    /// Knows KVM's workers by where they wait, if they were there before the trace; and has workers of which no end was told
    /// go when they were last seen.
    pub(crate) fn know_workers(&mut self) {
        let Self { threads, samples, .. } = self;
        let works = |one: &Sample| one.is_in(&["vhost_task_fn"]);
        for thread in threads.iter_mut().filter(|one| self.attached && !one.is_worker()) {
            let mut own = samples.iter().filter(|one| one.tid == thread.tid);
            thread.of_kvm = own.any(works);
        }
        if self.attached && self.processes.iter().any(|one| one.gone.is_none()) {
            return;
        }
        for thread in threads.iter_mut().filter(|one| one.is_worker() && one.gone.is_none()) {
            let seen = samples.iter().filter(|one| one.tid == thread.tid);
            thread.gone = seen.map(|one| one.at + one.took).max();
        }
    }

    /// What the record lacks, in a clause; `None` if nothing of it was lost.
    pub fn incomplete(&self) -> Option<String> {
        let lost = |count: u64, what: &str| (count > 0).then(|| format!("{count} {what}"));
        let parts =
            [lost(self.lost_events, "events were lost"), lost(self.lost, "calls were dropped")];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join(", and "))
    }

    /// The document, as it is kept in a file.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }
}

/// What recorded a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Recorder {
    /// `ptrace`, stopped by a filter at the calls that matter.
    #[default]
    Ptrace,
    /// `ptrace`, stopped at every system call.
    PtraceEveryCall,
    /// Tracepoints, which stop no thread.
    Tracefs,
}

impl Recorder {
    /// Its name, as the document has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ptrace => "ptrace",
            Self::PtraceEveryCall => "ptrace-every-call",
            Self::Tracefs => "tracefs",
        }
    }
}

impl fmt::Display for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ptrace => "ptrace with a seccomp filter",
            Self::PtraceEveryCall => "ptrace at every system call",
            Self::Tracefs => "tracefs",
        })
    }
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl End {
    /// What `wait(2)` says of a child that has ended.
    pub(crate) fn of(status: i32) -> Self {
        if libc::WIFSIGNALED(status) {
            Self::Signal(libc::WTERMSIG(status))
        } else {
            Self::Code(libc::WEXITSTATUS(status))
        }
    }
}

/// What following cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stops {
    /// How often a thread was stopped.
    pub count: u64,
    /// How long the recorder took for them, in nanoseconds, all together: the two switches of each are not in it.
    pub handling: u64,
}

/// A phase of the life.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    /// Its name: what had happened at its end.
    pub name: String,
    /// When it ended.
    pub at: u64,
    /// Since the one before ended.
    pub took: u64,
    /// Calls of its kind.
    #[serde(default)]
    pub calls: u64,
    /// Time in these.
    #[serde(default)]
    pub in_calls: u64,
}

/// The life of one VM of several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Life {
    /// Its number.
    pub vm: usize,
    /// The process that made it.
    pub pid: i32,
    /// When it began: with the program that its process executed, or with the VM's creation where that process has others.
    pub at: u64,
    /// How long it was: its phases are all of it.
    pub took: u64,
    /// From its beginning to the first entry of a vCPU.
    pub start: u64,
    /// From the last exit of a vCPU to the VM's end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<u64>,
    /// Its phases.
    pub phases: Vec<Phase>,
    /// What its start and its end hung on.
    pub critical_paths: Vec<CriticalPath>,
}

/// A wait, and what is known of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stall {
    /// What waited: a call's name, or what happened.
    pub what: String,
    /// The thread.
    pub tid: i32,
    /// Which of the calls of its name it is, from 0 on, where it is one: of the whole trace, in the order of beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nth: Option<usize>,
    /// When it began.
    pub at: u64,
    /// How long it took.
    pub took: u64,
    /// The same in ticks of the kernel's timer, where those are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticks: Option<f64>,
    /// What was seen of it, a clause each, whether or not that says what caused it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub known: Vec<String>,
    /// Its cause, where there is evidence of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
}

/// What a wait is made of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cause {
    /// A name that does not change: `grace-period`.
    pub code: String,
    /// What it is, in a sentence.
    pub what: String,
    /// What to do about it, in a sentence.
    pub remedy: String,
    /// What speaks for it, a clause each.
    pub evidence: Vec<String>,
    /// How sure it is.
    pub verdict: Verdict,
    /// What its remedy gains, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain: Option<Gain>,
}

/// How sure a cause is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The evidence speaks for it.
    #[default]
    Likely,
    /// It was taken away, and the wait was gone.
    Proved,
}
