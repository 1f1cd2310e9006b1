//! What a recorder saw: processes, threads, calls, and what threads waited in.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_nothing(number: &u64) -> bool {
    *number == 0
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
    /// When the recorder's own `waitid` said that it has ended, if it is the recorder's child.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited: Option<u64>,
    /// The VMs of which it had a descriptor when it ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<usize>,
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
    /// How often it called `KVM_RUN`, if each such call was seen.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub runs: u64,
    /// Whether KVM made it in the program's process, for work of its own: it runs none of the program's code.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_kvm: bool,
    /// The kernel's name for it, if the kernel made it in the program's process: `kvm-nx-lpage-re`, `iou-wrk-70`. It runs none
    /// of the program's code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// The signals that it got, and when: the first hundred.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<(u64, i32)>,
}

impl Thread {
    /// Whether the kernel made it in the program's process, KVM or another part.
    pub(crate) fn is_worker(&self) -> bool {
        self.of_kvm || self.worker.is_some()
    }

    /// Knows it for a worker that the kernel has made, and for KVM's where the name is one of KVM's.
    pub(crate) fn works_as(&mut self, name: String) {
        self.of_kvm = name.starts_with("kvm");
        self.worker = Some(name);
    }
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

/// What a thread had had of the processors by a moment. Between two moments it grows evenly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// The thread.
    pub tid: i32,
    /// The moment.
    pub at: u64,
    /// It had run for so long.
    pub ran: u64,
    /// It could have run, and had waited for a processor for so long.
    pub queued: u64,
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

impl Object {
    /// The VM that it is, or that it is a part of.
    pub fn vm(&self) -> Option<usize> {
        match self {
            Self::Kvm => None,
            Self::Vm { vm } | Self::Vcpu { vm, .. } | Self::Device { vm } => Some(*vm),
        }
    }
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

    /// The VM that it was made on, or on a part of.
    pub fn vm(&self) -> Option<usize> {
        self.on.as_ref()?.vm()
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
    /// How often it got a processor meanwhile: one that was asleep at all looks has slept once more often than that.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub turns: u64,
    /// Page faults that it had meanwhile, where it ran a program of its own.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub faults: u64,
    /// The same of processor time in the kernel, in nanoseconds, which is counted in hundredths of a second.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub system: u64,
    /// The same of processor time in a guest, where it ran a vCPU's.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub guest: u64,
    /// The system call, by number, and its first arguments; absent where it ran a program of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<(u64, [u64; 4])>,
    /// The file, the pipe or the socket that this call is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The thread or the process that holds the lock which it waits for, where the lock says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<i32>,
    /// The function of the kernel that it waited in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// The kernel's functions that it was in, innermost first; empty without the right to know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stack: Vec<String>,
}

/// From when the start is counted, where that is not the program's execution.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct From {
    /// What happened then: `socket`, `file`, `usdt`, or the name of a call.
    pub event: String,
    /// When.
    pub at: u64,
}

impl fmt::Display for From {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.event)
    }
}
