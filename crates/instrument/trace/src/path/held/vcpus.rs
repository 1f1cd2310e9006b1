//! What vCPUs' threads slept in between two runs of their vCPU.

use super::{Found, Sleeps, sleeps};
use crate::life::runs_vcpu;
use crate::looks::SLACK;
use crate::path::pieces::Stretch;
use crate::path::walk::Wait;
use crate::record::{Sample, Thread, Trace};

impl Trace {
    /// When a thread first ran a vCPU.
    fn first_run(&self, thread: &Thread) -> Option<u64> {
        let mut calls = self.calls.iter().filter(|call| call.tid == thread.tid);
        let called = calls.find(|call| call.name == "KVM_RUN").map(|call| call.at);
        let mut samples = self.samples.iter().filter(|one| one.tid == thread.tid);
        called.or_else(|| samples.find(|one| runs_vcpu(one)).map(|one| one.at))
    }

    /// Whether KVM has the interrupt controllers, or at least the local ones, and so halts vCPUs itself.
    fn has_controller(&self) -> bool {
        const HAS: [&str; 3] = ["KVM_CREATE_IRQCHIP", "KVM_ENABLE_CAP", "KVM_CREATE_DEVICE"];
        self.calls.iter().any(|call| HAS.contains(&call.name.as_str()))
    }
}

impl Sleeps<'_> {
    /// The sleeps of vCPUs' threads between their first entry and their last exit. Where KVM has no interrupt controller, a
    /// vCPU that halts sleeps in a lock of its program's: that is no wait.
    pub(super) fn of_vcpus(&self) -> Found {
        let mut found = Found::default();
        let may_halt = !self.trace.has_controller();
        for thread in self.trace.threads.iter().filter(|thread| self.trace.ran_vcpu(thread)) {
            let run = self.trace.first_run(thread).zip(self.trace.left(thread));
            let Some((from, to)) = run.filter(|(from, to)| from < to) else { continue };
            let mut own = Vec::new();
            self.asleep(Stretch { tid: thread.tid, from, to }, &mut own);
            let is_meant = |look: &Sample| !may_halt || !look.is_in_call(&[libc::SYS_futex]);
            own.retain(|one| self.longest(one).is_some_and(is_meant) || !may_halt);
            found.long.extend(own);
            let looks = self.index.samples(thread.tid, from, to);
            let looks = looks.filter(|one| sleeps(one) && !runs_vcpu(one) && is_meant(one));
            let looks = looks.filter(|one| !self.is_recorded(thread.tid, one.at));
            let short = looks.filter_map(|look| {
                let call = look.call.map_or(u64::MAX, |(number, _)| number);
                Some((call, self.around(look, (from, to))?))
            });
            found.short.extend(short.filter(|(_, one)| !self.is_long(one.from, one.to)));
        }
        found
    }

    /// The sleep that a look found a thread in, as the scheduler told it; else as long as the look, or the time without a
    /// processor around it.
    fn around(&self, look: &Sample, (from, to): (u64, u64)) -> Option<Wait> {
        let (tid, seen) = (look.tid, look.at + look.took);
        let ended = self.ended.get(&tid).map_or(&[][..], |all| all);
        let wake = ended.get(ended.partition_point(|wake| wake.at < look.at));
        if let Some(wake) = wake {
            let is_it = wake.since <= look.at;
            return is_it.then(|| Wait::once(tid, (wake.since, wake.at), wake.by));
        }
        let window = (look.at.saturating_sub(SLACK).max(from), (seen + SLACK).min(to));
        let neighbours = || self.index.samples(tid, window.0, window.1);
        let before = neighbours().filter(|one| one.at < look.at).map(|one| one.at + one.took).max();
        let after = neighbours().map(|one| one.at).find(|at| *at > look.at);
        let window = (before.unwrap_or(0).max(window.0), after.unwrap_or(window.1).min(window.1));
        let slept = self.index.spent(tid, window.0, window.1)?.asleep();
        let times = look.turns + 1;
        let wait = Wait::once(tid, (look.at, seen.max(look.at + 1)), None);
        (slept / times < self.trace.least()).then_some(Wait { times, slept, ..wait })
    }
}
