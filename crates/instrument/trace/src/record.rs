//! The record of a trace: one document, `mayfly.trace/1`, that the command writes as JSON.
//!
//! Times are nanoseconds since the trace began (`at`), and lengths of time (`took`). Additions keep the version.

use std::collections::BTreeMap;
use std::fmt;

use mayfly_record::Host;
use serde::{Deserialize, Serialize};

use crate::gain::{Gain, Replay};
use crate::path::CriticalPath;

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
    /// How the program ended; absent if it was attached to, and goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<End>,
    /// From the beginning of the trace to its end, in nanoseconds.
    pub span: u64,
    /// What following cost the program.
    pub stops: Stops,
    /// Calls and samples that were not kept, for there were too many.
    #[serde(default)]
    pub lost: u64,
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
    /// What else has to be said, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The phases of the life, in the order in which they ended.
    #[serde(default)]
    pub phases: Vec<Phase>,
    /// The longest waits, longest first, and what is known of them.
    #[serde(default)]
    pub stalls: Vec<Stall>,
    /// What the start and the end of the VM's life hung on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub critical_paths: Vec<CriticalPath>,
    /// What was replayed to know what remedies gain, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<Replay>,
}

/// The version of [`Trace`].
pub const SCHEMA: &str = "mayfly.trace/1";

impl Trace {
    /// Takes away the calls that samples of KVM's own threads seem to be in: a thread that is made in a call has a copy of
    /// its maker's registers, and so of the call, and makes none itself.
    pub(crate) fn forget_inherited_calls(&mut self) {
        let Self { threads, samples, .. } = self;
        let of_kvm = |tid: i32| threads.iter().any(|one| one.tid == tid && one.of_kvm);
        for sample in samples.iter_mut().filter(|one| of_kvm(one.tid)) {
            sample.call = None;
        }
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

/// A process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// The one that made it; the program has none here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<i32>,
    /// When it was first seen.
    pub at: u64,
    /// When it was gone; absent if that was not seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone: Option<u64>,
    /// Bytes of memory that it had when it began to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resident: Option<u64>,
    /// When it executed programs, and which.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub executed: Vec<(u64, String)>,
}

/// A thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Its number.
    pub tid: i32,
    /// Its process.
    pub pid: i32,
    /// The thread that made it, where that was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maker: Option<i32>,
    /// When it was first seen.
    pub at: u64,
    /// When it began to end: what it holds is given up after that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<u64>,
    /// When it had ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone: Option<u64>,
    /// Whether it ran a vCPU.
    #[serde(default)]
    pub vcpu: bool,
    /// Whether KVM made it in the program's process, for work of its own: it runs none of the program's code.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_kvm: bool,
    /// The signals that it got, and when: the first hundred.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<(u64, i32)>,
}

/// A wait of a thread's that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wake {
    /// The thread.
    pub tid: i32,
    /// When it began to wait.
    pub since: u64,
    /// When it was told to go on.
    pub at: u64,
    /// The thread that told it; absent where that was an interrupt, as a timer's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<i32>,
}

/// What a descriptor of KVM stands for. VMs are numbered in the order in which they were first seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Object {
    /// `/dev/kvm`.
    Kvm,
    /// A VM.
    Vm {
        /// Its number.
        vm: usize,
    },
    /// A vCPU.
    Vcpu {
        /// Its VM.
        vm: usize,
        /// Its number in the VM.
        id: u64,
    },
    /// What `KVM_CREATE_DEVICE` and others make.
    Device {
        /// Its VM.
        vm: usize,
    },
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kvm => f.write_str("/dev/kvm"),
            Self::Vm { vm } => write!(f, "VM {vm}"),
            Self::Vcpu { vm, id } => write!(f, "vCPU {id} of VM {vm}"),
            Self::Device { vm } => write!(f, "a device of VM {vm}"),
        }
    }
}

/// A call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// The thread that made it.
    pub tid: i32,
    /// That thread's process.
    pub pid: i32,
    /// When it began.
    pub at: u64,
    /// How long it took; absent if its end was not seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took: Option<u64>,
    /// Its name: `KVM_...` of an ioctl, else the system call's.
    pub name: String,
    /// The descriptor that it was made on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fd: Option<i32>,
    /// What that stands for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<Object>,
    /// The arguments that matter, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub arguments: BTreeMap<String, u64>,
    /// What it returned: a negative number is an error's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<i64>,
    /// What the thread had of the processors in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<Used>,
    /// Bytes that the thread had read, all together, when it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<u64>,
}

/// What a thread had of the processors, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// It ran.
    pub ran: u64,
    /// It could have run, and waited for a processor.
    pub queued: u64,
}

impl Call {
    /// When it ended; when it began, if its end was not seen.
    pub fn end(&self) -> u64 {
        self.at + self.took.unwrap_or(0)
    }

    /// Whether it is an ioctl of KVM's.
    pub fn is_kvm(&self) -> bool {
        self.name.starts_with("KVM_")
    }

    /// Whether it succeeded, as far as that was seen.
    pub fn succeeded(&self) -> bool {
        self.result.is_some_and(|result| result >= 0)
    }

    /// An argument; 0 if it was not seen.
    pub fn argument(&self, name: &str) -> u64 {
        self.arguments.get(name).copied().unwrap_or(0)
    }
}

/// What a thread did when it was looked at, and went on doing without a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// The thread.
    pub tid: i32,
    /// When it was first seen at it.
    pub at: u64,
    /// When it was last seen at it, counted from `at`.
    pub took: u64,
    /// How often it was looked at.
    pub seen: u64,
    /// Processor time that it used meanwhile, in nanoseconds.
    #[serde(default)]
    pub ran: u64,
    /// The system call, by number, and its first arguments; absent where it ran a program of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<(u64, [u64; 4])>,
    /// The function of the kernel that it waited in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// The kernel's functions that it was in, innermost first; empty without the right to know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stack: Vec<String>,
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
