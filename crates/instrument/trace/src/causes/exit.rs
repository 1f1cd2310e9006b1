//! The process has ended, and is not gone: its memory is freed, its VM destroyed, on its way out.

use mayfly_record::units::{bytes, duration};

use super::busy;
use super::destroy::{self, DESTROYS};
use super::evidence::Stretch;
use super::likely::likely;
use crate::record::{Stall, Thread, Trace};

/// Memory that takes no time to speak of, in bytes.
const LITTLE: u64 = 24 << 20;
const FREES: [&str; 6] =
    ["exit_mm*", "exit_mmap", "unmap_*", "zap_*", "mmput", "free_pages_and_swap_cache"];

pub(super) fn find(trace: &Trace) -> Vec<Stall> {
    trace
        .processes
        .iter()
        .filter_map(|process| {
            let threads = || trace.threads.iter().filter(|one| one.pid == process.pid);
            let (from, to) = (threads().filter_map(|one| one.ending).max()?, process.gone?);
            let of = |thread: &Thread| Stretch { trace, tid: thread.tid, from, to };
            // What all of them hold is given up by one: by the last, which need not be the first, nor be seen to be last.
            let gives_up = |thread: &Thread| {
                let stretch = of(thread);
                stretch.looks_at(&DESTROYS).max(stretch.looks_at(&FREES))
            };
            let busiest = threads().filter(|one| gives_up(one) > 0).max_by_key(|one| gives_up(one));
            let last = busiest.or_else(|| trace.last_gone(process.pid))?;
            let stretch = of(last);
            if stretch.took() < trace.least() {
                return None;
            }
            let (ran, took) = (stretch.ran(), stretch.took());
            let spent = trace.spent(last.tid, from, to).unwrap_or_default();
            let resident = process.resident.unwrap_or(0);
            let stall = Stall {
                what: "the end of the process".to_owned(),
                tid: last.tid,
                at: from,
                took,
                ..Stall::default()
            };
            let cause = match (stretch.seen_in(&DESTROYS), stretch.seen_in(&FREES)) {
                (Some(function), _) if ran < took / 2 => likely(
                    "vm-destruction",
                    "the VM is destroyed when its process has ended",
                    "close the VM on a thread that nothing waits for, before the process ends",
                    destroy::evidence(&stretch, &function),
                ),
                // Memory is freed on a processor: what sleeps or waits for one does something else. Where a VM goes, too,
                // the most of it has to have run for certain: a doubt of a tick is as long as a VM waits.
                (_, seen)
                    if resident >= LITTLE
                        && (process.held.is_empty() || 2 * ran >= took)
                        && 2 * spent.asleep().max(spent.queued).saturating_sub(trace.unsure())
                            < took
                        && (ran >= trace.least() / 2 || seen.is_some()) =>
                {
                    let mut evidence =
                        vec![format!("it had {} of memory when it ended", bytes(resident))];
                    // What it ran for is seen by differences, of which a short end has none.
                    evidence
                        .extend((ran > 0).then(|| format!("it ran for {} of it", duration(ran))));
                    evidence.extend(seen.map(|function| format!("it was seen in {function}")));
                    likely(
                        "memory-freed-at-exit",
                        "the process's memory is freed page by page before the process is gone",
                        "use huge pages, or signal the process that waits before this one ends",
                        evidence,
                    )
                }
                _ if 2 * spent.queued >= took => {
                    busy::runnable(trace, (spent.queued, took), (from, to), "the end")
                }
                _ if 2 * spent.asleep() >= took && !process.held.is_empty() => likely(
                    "vm-destruction",
                    "the VM is destroyed when its process has ended",
                    "close the VM on a thread that nothing waits for, before the process ends",
                    vec![
                        format!("the process had {} open when it ended", vms(&process.held)),
                        format!(
                            "its last thread slept {} of {}",
                            duration(spent.asleep()),
                            duration(took)
                        ),
                    ],
                ),
                _ => return Some(stall),
            };
            Some(Stall { cause: Some(cause), ..stall })
        })
        .collect()
}

fn vms(numbers: &[usize]) -> String {
    let names: Vec<String> = numbers.iter().map(|vm| format!("VM {vm}")).collect();
    names.join(" and ")
}
