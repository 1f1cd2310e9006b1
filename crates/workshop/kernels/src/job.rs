//! What is run in each machine.

use crate::archive::Arch;
use crate::machine::Machine;

/// A command of mayfly's that leaves a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    /// Its document's name.
    pub(crate) name: &'static str,
    pub(crate) command: Command,
    /// What is added to the command line.
    pub(crate) arguments: &'static str,
}

/// Which command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// `mayfly run --backend kvm`.
    Run,
    /// `mayfly doctor`.
    Doctor,
}

impl Command {
    /// Its part of the command line.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Run => "run --backend kvm",
            Self::Doctor => "doctor",
        }
    }
}

/// What every machine runs. One vCPU: with several of them on one processor, what is measured is when they take turns.
const LIFE: Job = Job {
    name: "life",
    command: Command::Run,
    arguments: "device-registration slot-delete teardown --vcpus 1 --vms 6 --rounds 3 --order devices-first \
                --memory 64MiB",
};

/// Its VMs have two vCPUs, one of which writes all the time.
const MERGE: Job = Job {
    name: "merge",
    command: Command::Run,
    arguments: "page-merge --ksm --vms 2 --rounds 2 --memory 4MiB",
};

/// One vCPU after the other turns its caches on, on one thread.
const CACHES: Job = Job {
    name: "caches",
    command: Command::Run,
    arguments: "cache-enable --vcpus 4 --rounds 1 --memory 64MiB",
};

/// Enough to see who waits for whom.
const START: Job = Job {
    name: "start",
    command: Command::Run,
    arguments: "device-registration --vcpus 1 --vms 5 --order devices-first",
};

/// What the doctor has to say of it.
const DOCTOR: Job = Job { name: "doctor", command: Command::Doctor, arguments: "" };

/// What a machine runs, one after the other.
pub(crate) fn jobs(machine: Machine, quick: bool) -> &'static [Job] {
    match (quick, machine.arch()) {
        (true, _) => &[START, DOCTOR],
        (false, Arch::Amd64) => &[LIFE, MERGE],
        (false, Arch::Arm64) => &[LIFE, CACHES, MERGE],
    }
}
