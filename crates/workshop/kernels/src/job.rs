//! The commands that run in each machine.

use crate::archive::Arch;
use crate::machine::Machine;

/// A command of `mayfly` that writes a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    /// The document's name.
    pub(crate) name: &'static str,
    pub(crate) command: Command,
    /// More arguments of the command.
    pub(crate) arguments: &'static str,
}

/// The subcommand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// `mayfly run --backend kvm`.
    Run,
    /// `mayfly doctor`.
    Doctor,
    /// `mayfly laws`.
    Laws,
}

impl Command {
    /// Its words on the command line.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Run => "run --backend kvm",
            Self::Doctor => "doctor",
            Self::Laws => "laws",
        }
    }
}

/// Every machine runs this. It has one vCPU: several on one processor would measure when they take turns.
const LIFE: Job = Job {
    name: "life",
    command: Command::Run,
    arguments: "device-registration slot-delete teardown --vcpus 1 --vms 6 --rounds 3 --order devices-first \
                --memory 64MiB",
};

/// Measures merged pages. Its VMs have two vCPUs, one of which writes all the time.
const MERGE: Job = Job {
    name: "merge",
    command: Command::Run,
    arguments: "page-merge --ksm --vms 2 --rounds 2 --memory 4MiB",
};

/// Measures caches: one vCPU after the other turns them on, on one thread.
const CACHES: Job = Job {
    name: "caches",
    command: Command::Run,
    arguments: "cache-enable --vcpus 4 --rounds 1 --memory 64MiB",
};

/// Measures the start of a VM, with enough VMs to see what waits.
const START: Job = Job {
    name: "start",
    command: Command::Run,
    arguments: "device-registration --vcpus 1 --vms 5 --order devices-first",
};

/// Asks the doctor.
const DOCTOR: Job = Job { name: "doctor", command: Command::Doctor, arguments: "" };

/// Measures how calls grow, one job a pair. Each has a law on some kernel and another, or none, on others. The clock counts
/// instructions, so the fewest rounds suffice.
///
/// vCPUs and slots go no further than two decades need: to make what is counted takes most of the instructions. Left out are
/// `vms` and `logged-slots`, for the same reason, and `threads`, which needs several processors.
const LAWS: [Job; 5] = [
    Job {
        name: "laws-mappings",
        command: Command::Laws,
        arguments: "create-vm --against mappings --rounds 5",
    },
    Job {
        name: "laws-age",
        command: Command::Laws,
        arguments: "close-vm --against age --rounds 5",
    },
    Job {
        name: "laws-ioeventfds",
        command: Command::Laws,
        arguments: "add-ioeventfd --against ioeventfds --rounds 5",
    },
    Job {
        name: "laws-vcpus",
        command: Command::Laws,
        arguments: "create-vcpu close-vm --against vcpus --rounds 5 --up-to 100",
    },
    Job {
        name: "laws-slots",
        command: Command::Laws,
        arguments: "add-slot delete-slot close-vm --against slots --rounds 5 --up-to 100",
    },
];

/// What is asked of the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// The experiments.
    Whole,
    /// One wait.
    Quick,
    /// How calls grow.
    Laws,
}

/// The jobs of a machine, in their order.
pub(crate) fn jobs(machine: Machine, look: Look) -> &'static [Job] {
    match (look, machine.arch()) {
        (Look::Quick, _) => &[START, DOCTOR],
        (Look::Laws, _) => &LAWS,
        (Look::Whole, Arch::Amd64) => &[LIFE, MERGE],
        (Look::Whole, Arch::Arm64) => &[LIFE, CACHES, MERGE],
    }
}
