//! The process has ended, and is not gone: its memory is freed, its VM destroyed, on its way out.

use mayfly_record::units::{bytes, duration};

use super::busy;
use super::destroy;
use super::evidence::Stretch;
use super::likely::likely;
use crate::record::{Cause, Process, Sample, Stall, Thread, Trace};
use crate::spent::Spent;
use crate::times::Accounts;

/// Memory that takes no time to speak of, in bytes.
const LITTLE: u64 = 24 << 20;
/// Where a thread waited so many times as long for a processor as it took for all else, the others are the cause.
const MOSTLY: u64 = 4;
const FREES: [&str; 9] = [
    "exit_mm*",
    "exit_mmap",
    "unmap_*",
    "zap_*",
    "mmput",
    "__mmput",
    "tlb_finish_mmu",
    "__tlb_batch_free_encoded_pages",
    "free_pages_and_swap_cache",
];

pub(super) fn find(trace: &Trace) -> Vec<Stall> {
    let accounts = Accounts::of(trace);
    trace.processes.iter().filter_map(|process| of(trace, &accounts, process)).collect()
}

fn of(trace: &Trace, accounts: &Accounts, process: &Process) -> Option<Stall> {
    let threads = || trace.threads.iter().filter(|one| one.pid == process.pid);
    let (from, to) = (threads().filter_map(|one| one.ending).max()?, process.gone?);
    if to.saturating_sub(from) < trace.least() {
        return None;
    }
    let stretch = |thread: &Thread| Stretch { trace, tid: thread.tid, from, to };
    // What all of them hold is given up by one: by the last, which need not be the first, nor be seen to be last.
    // A look may have begun long before, and says of the end no more than its part of it.
    let gives_up = |thread: &Thread| {
        let own =
            Stretch { to: thread.gone.map_or(to, |gone| gone.clamp(from, to)), ..stretch(thread) };
        own.time_by(accounts, |one| destroy::is_of_vm(one) || frees(one))
    };
    let times = threads().map(|one| (gives_up(one), one)).filter(|(time, _)| *time > 0);
    let busiest = times.max_by_key(|(time, _)| *time).map(|(_, one)| one);
    let last = busiest.or_else(|| trace.last_gone(process.pid))?;
    let stretch = stretch(last);
    let spent = stretch.spent(accounts);
    let end = End { process, stretch, accounts, spent };
    Some(Stall {
        what: "the end of the process".to_owned(),
        tid: last.tid,
        at: from,
        took: stretch.took(),
        cause: end.cause(),
        ..Stall::default()
    })
}

/// How a process ends: the thread that gives up what all of them held, from the moment at which all had begun to end.
struct End<'a> {
    process: &'a Process,
    stretch: Stretch<'a>,
    accounts: &'a Accounts,
    spent: Option<Spent>,
}

impl End<'_> {
    fn cause(&self) -> Option<Cause> {
        let Self { process, stretch, accounts, .. } = self;
        let (trace, took) = (stretch.trace, stretch.took());
        let spent = self.spent.unwrap_or_default();
        // What it waited for a processor says nothing of the rest.
        let own = took.saturating_sub(spent.queued);
        let destroys = stretch.time_by(accounts, destroy::is_of_vm);
        let frees = stretch.time_by(accounts, frees);
        if own < trace.least() || own.saturating_mul(MOSTLY) < spent.queued {
            return self.busy();
        }
        if destroys > frees {
            return Some(self.with_queued(destruction(destroy::evidence(stretch))));
        }
        let ran = stretch.ran().max(spent.ran);
        let resident = process.resident.unwrap_or(0);
        // Memory is freed on a processor: what sleeps does something else. Where a VM goes, too, the thread has to have run for
        // most of the whole end: a doubt of a tick is as long as a VM waits.
        let slept = spent.asleep().saturating_sub(trace.unsure());
        let is_freed = resident >= LITTLE
            && 2 * slept < own
            && (process.held.is_empty() || 2 * ran >= took)
            && (ran >= trace.least() / 2 || frees > 0);
        if is_freed {
            return Some(self.with_queued(self.freed(resident, ran)));
        }
        let was_seen = stretch.samples().any(|one| one.functions().next().is_some());
        if 2 * spent.asleep() >= took && !process.held.is_empty() && !was_seen {
            let slept =
                format!("its last thread slept {} of {}", duration(spent.asleep()), duration(took));
            let had = format!("the process had {} open when it ended", vms(&process.held));
            return Some(destruction(vec![had, slept]));
        }
        self.busy()
    }

    /// Others had the processors for most of it.
    fn busy(&self) -> Option<Cause> {
        let Stretch { trace, from, to, .. } = self.stretch;
        let (queued, took) = (self.spent?.queued, self.stretch.took());
        (2 * queued >= took).then(|| busy::runnable(trace, (queued, took), (from, to), "the end"))
    }

    /// A cause of what others left, and what they had, if that was most of it.
    fn with_queued(&self, mut cause: Cause) -> Cause {
        let queued = self.spent.map_or(0, |spent| spent.queued);
        cause.evidence.extend(busy::also_queued(queued, self.stretch.took()));
        cause
    }

    fn freed(&self, resident: u64, ran: u64) -> Cause {
        let mut evidence = vec![format!("it had {} of memory when it ended", bytes(resident))];
        // What it ran for is seen by differences, of which a short end has none.
        evidence.extend((ran > 0).then(|| format!("it ran for {} of it", duration(ran))));
        let seen = self.stretch.seen_in(&FREES);
        evidence.extend(seen.map(|function| format!("it was seen in {function}")));
        likely(
            "memory-freed-at-exit",
            "the process's memory is freed page by page before the process is gone",
            "use huge pages, or signal the process that waits before this one ends",
            evidence,
        )
    }
}

/// Whether a look found a thread where it frees memory of its process.
fn frees(look: &Sample) -> bool {
    look.is_in(&FREES) && !destroy::is_of_vm(look)
}

fn destruction(evidence: Vec<String>) -> Cause {
    likely(
        "vm-destruction",
        "the VM is destroyed when its process has ended",
        "close the VM on a thread that nothing waits for, before the process ends",
        evidence,
    )
}

fn vms(numbers: &[usize]) -> String {
    let names: Vec<String> = numbers.iter().map(|vm| format!("VM {vm}")).collect();
    names.join(" and ")
}
