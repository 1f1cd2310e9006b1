//! What is seen of the VMs of a host in one interval.

use std::fmt;
use std::time::{Duration, SystemTime};

pub use crate::counters::Exits;

/// All that is seen in one interval.
#[derive(Clone, Debug)]
pub struct Sight {
    /// When the interval ended.
    pub at: SystemTime,
    /// How long it was.
    pub took: Duration,
    /// How often threads were looked at in it.
    pub looks: u32,
    /// The VMs, by process and descriptor.
    pub rows: Vec<Row>,
    /// What could not be seen, a sentence each.
    pub missing: Vec<String>,
}

/// A VM in one interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The process that has it.
    pub pid: i32,
    /// Its descriptor there.
    pub vm: i32,
    /// What the kernel calls the process.
    pub program: String,
    /// What the process's command line calls the VM; none where it says nothing.
    pub name: Option<String>,
    /// How many vCPUs it has; none where that cannot be told.
    pub vcpus: Option<usize>,
    /// What it does.
    pub state: State,
    /// Of the looks at threads that run its vCPUs, how many of a hundred found one at work, and not in a halt; none where
    /// there was no look.
    pub busy: Option<u32>,
    /// How often its vCPUs left their guests, as `source` has it; none where that is not to be had.
    pub exits: Option<Exits>,
    /// The same in this interval; none in the first one.
    pub recent: Option<Exits>,
    /// Where they are from: `debugfs`, `statistics`, or `tracepoints`, which count from when it was first seen.
    pub source: Option<&'static str>,
    /// Calls to KVM that threads waited in, the longest first.
    pub waits: Vec<Wait>,
    /// What is not to be had of them, and why.
    pub missing: Option<String>,
}

/// What a VM does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It has no vCPU yet, or none was seen to run.
    Starts,
    /// Its vCPUs run.
    Runs,
    /// All vCPUs have halted, and wait for an interrupt.
    Idle,
    /// It has run, and no vCPU is in `KVM_RUN`.
    Stopped,
    /// It cannot be told: it has come in this interval, or its process has several VMs and the kernel does not say whose
    /// its threads are.
    Unknown,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Starts, Self::Runs, Self::Idle, Self::Stopped, Self::Unknown];
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Starts => "starts",
            Self::Runs => "runs",
            Self::Idle => "idle",
            Self::Stopped => "stopped",
            Self::Unknown => "unknown",
        })
    }
}

/// A call to KVM, not `KVM_RUN`, that threads were found waiting in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Its name.
    pub call: String,
    /// The function of the kernel's that it waited in last, where that is to be seen.
    pub function: Option<String>,
    /// In how many looks.
    pub looks: u32,
    /// The time between the first and the last look at one call of one thread: it took no less.
    pub at_least: Duration,
}
