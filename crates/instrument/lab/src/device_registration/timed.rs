//! What is timed.

use std::mem::take;
use std::time::{Duration, Instant};

use mayfly_record::{ResultRow, Samples};

use crate::experiment::Metric;
use crate::start::Starts;
use crate::work::{self, Spent};

/// A timed call. Indexes [`TIMED`].
#[derive(Clone, Copy, Debug)]
pub(super) enum Timed {
    Create,
    Irqchip,
    FirstRegister,
    Register,
    FirstMemslot,
    FirstVcpu,
    FirstExit,
    Total,
    LaterMemslot,
    Unregister,
    BusyRegister,
    BusyMemslot,
    BusyVcpu,
    BusyUnregister,
    BackToBackMemslot,
    BackToBackUnregister,
    Destroy,
    Ready,
    ReadyAfterCreate,
    Close,
    ReadyAndClose,
    CloseAtOnce,
    ReadyAndCloseAtOnce,
}

/// Names and meanings, in the order of [`Timed`].
pub(super) static TIMED: [Metric; 23] = [
    Metric { name: "create", summary: "creating the VM" },
    Metric {
        name: "irqchip",
        summary: "creating the interrupt controller: four ranges on two buses",
    },
    Metric { name: "first_register", summary: "registering the VM's first ioeventfd" },
    Metric { name: "register", summary: "registering one of the others" },
    Metric { name: "first_memslot", summary: "setting the VM's first memory" },
    Metric {
        name: "first_vcpu",
        summary: "creating the first vCPU, with its internal slot if it adds one",
    },
    Metric { name: "first_exit", summary: "the first vCPU's run to its first MMIO exit" },
    Metric { name: "total", summary: "from before the VM's creation to its first MMIO exit" },
    Metric { name: "later_memslot", summary: "adding memory after that" },
    Metric { name: "unregister", summary: "unregistering one ioeventfd after that" },
    Metric {
        name: "busy_register",
        summary: "registering one at a random moment, while all vCPUs run and write to a device",
    },
    Metric {
        name: "busy_memslot",
        summary: "adding memory meanwhile, less than a tick after a registration",
    },
    Metric { name: "busy_vcpu", summary: "creating one more vCPU meanwhile" },
    Metric {
        name: "busy_unregister",
        summary: "unregistering one meanwhile, less than a tick after a registration",
    },
    Metric {
        name: "back_to_back_memslot",
        summary: "adding memory meanwhile, right after a registration",
    },
    Metric {
        name: "back_to_back_unregister",
        summary: "unregistering one meanwhile, right after a registration",
    },
    Metric { name: "destroy", summary: "destroying the VM and its vCPUs" },
    Metric {
        name: "ready",
        summary: "of a VM that only starts and ends: from before its creation until all vCPUs are there",
    },
    Metric { name: "ready_after_create", summary: "the same from when it is created" },
    Metric { name: "close", summary: "closing that VM some ticks later, until it is gone" },
    Metric { name: "ready_and_close", summary: "both: what a start saves, its end may pay" },
    Metric {
        name: "close_at_once",
        summary: "closing one as soon as it is ready: what its registrations have armed is not over",
    },
    Metric { name: "ready_and_close_at_once", summary: "the start and the end of that one" },
];

/// Samples of one call that are recorded without an allocation.
const ROOM: usize = 4096;

/// The samples of a row.
pub(super) struct Timings {
    /// What the VMs had.
    pub(super) starts: Starts,
    samples: Vec<Samples>,
    /// In this VM's life so far.
    spent: Spent,
    lives: Vec<Spent>,
}

impl Default for Timings {
    fn default() -> Self {
        // Not by clones of one: those have no room.
        Self {
            starts: Starts::default(),
            samples: TIMED.iter().map(|_| Samples::with_capacity(ROOM)).collect(),
            spent: Spent::default(),
            lives: Vec::new(),
        }
    }
}

impl Timings {
    /// Times `work`.
    pub(super) fn time<T>(&mut self, what: Timed, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = work();
        self.since(what, start);
        result
    }

    /// Takes the time from `start` to now.
    pub(super) fn since(&mut self, what: Timed, start: Instant) {
        self.took(what, start.elapsed());
    }

    /// Takes a time that was measured elsewhere.
    pub(super) fn took(&mut self, what: Timed, time: Duration) {
        self.samples[what as usize].record(time);
    }

    /// Adds what threads did in a part of the VM's life.
    pub(super) fn spent(&mut self, spent: &Spent) {
        self.spent += spent;
    }

    /// A VM's life is over: what it took is a round.
    pub(super) fn end_round(&mut self) {
        self.lives.push(take(&mut self.spent));
        self.samples.iter_mut().for_each(Samples::end_round);
    }

    /// Adds all that was measured to `row`.
    pub(super) fn report(&self, row: ResultRow) -> ResultRow {
        TIMED
            .iter()
            .zip(&self.samples)
            .fold(work::report(self.starts.report(row), &self.lives), |row, (metric, samples)| {
                row.metric(metric.name, samples)
            })
    }
}
