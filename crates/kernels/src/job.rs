//! What is run in each machine.

use crate::archive::Arch;
use crate::machine::Machine;

/// A `mayfly run --backend kvm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    /// Its record's name.
    pub(crate) name: &'static str,
    /// What is added to the command line.
    pub(crate) arguments: &'static str,
}

/// What every machine runs. One vCPU: with several of them on one processor, what is measured is when they take turns.
const LIFE: Job = Job {
    name: "life",
    arguments: "device-registration slot-delete teardown --vcpus 1 --vms 6 --rounds 3 --order devices-first \
                --memory 64MiB",
};

/// Its VMs have two vCPUs, one of which writes all the time.
const MERGE: Job =
    Job { name: "merge", arguments: "page-merge --ksm --vms 2 --rounds 2 --memory 4MiB" };

/// One vCPU after the other turns its caches on, on one thread.
const CACHES: Job =
    Job { name: "caches", arguments: "cache-enable --vcpus 4 --rounds 1 --memory 64MiB" };

/// Enough to see who waits for whom.
const START: Job =
    Job { name: "start", arguments: "device-registration --vcpus 1 --vms 5 --order devices-first" };

/// What a machine runs, one after the other.
pub(crate) fn jobs(machine: Machine, quick: bool) -> &'static [Job] {
    match (quick, machine.arch()) {
        (true, _) => &[START],
        (false, Arch::Amd64) => &[LIFE, MERGE],
        (false, Arch::Arm64) => &[LIFE, CACHES, MERGE],
    }
}
