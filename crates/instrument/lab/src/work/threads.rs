//! The threads of what is measured.

use mayfly_machine::{Machine, MachineWorker};
use mayfly_stage2::Format;
use rustix::thread::Pid;

use super::role::ThreadRole;
use super::spent::Spent;
use super::used::{Switches, Used, cpu, switches};

/// Threads beside the calling one, each with its role. They are there as long as they are read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Threads(Vec<(ThreadRole, Pid)>);

/// What they had had at one moment.
pub(crate) struct Read(Vec<(Option<u64>, Option<Switches>)>);

impl Threads {
    /// And one more.
    #[must_use]
    pub(crate) fn and(mut self, role: ThreadRole, thread: Pid) -> Self {
        self.0.push((role, thread));
        self
    }

    /// And those that do a machine's deferred work.
    #[must_use]
    pub(crate) fn and_of<F: Format>(self, machine: &Machine<F>) -> Self {
        self.and_worker(machine.worker()).and(ThreadRole::Reclaimer, machine.reclaimer_thread())
    }

    /// And those that run what is deferred.
    #[must_use]
    pub(crate) fn and_worker(self, worker: &MachineWorker) -> Self {
        worker.threads().fold(self, |threads, thread| threads.and(ThreadRole::Worker, thread))
    }

    /// Reads them, where what is measured begins: their CPU clocks last.
    pub(crate) fn read(&self) -> Read {
        let switches: Vec<_> = self.0.iter().map(|(_, thread)| switches(*thread)).collect();
        let cpu = self.0.iter().map(|(_, thread)| cpu(*thread));
        Read(cpu.zip(switches).collect())
    }

    /// What they have had since, where what is measured ends: their CPU clocks are read first.
    pub(crate) fn since(&self, before: &Read) -> Spent {
        let cpu: Vec<_> = self.0.iter().map(|(_, thread)| cpu(*thread)).collect();
        let mut spent = Spent::default();
        for (((role, thread), cpu), (cpu_before, switches_before)) in
            self.0.iter().zip(cpu).zip(&before.0)
        {
            let Some((cpu, before)) = cpu.zip(*cpu_before) else { continue };
            let since = |(now, before): (Switches, Switches)| now - before;
            let switches = switches(*thread).zip(*switches_before).map(since);
            spent.add(*role, Used { cpu: cpu.saturating_sub(before), switches });
        }
        spent
    }
}
