//! Which thread ended the wait of which, as seen or as inferred.

use std::collections::HashMap;

use super::index::Index;
use crate::looks::SLACK;
use crate::record::{Sample, Thread, Trace, Wake};

/// Waits that another thread of the program has ended, by the one that waited, in the order of their ends.
pub(super) struct Wakes {
    of: HashMap<i32, Vec<Woken>>,
    /// Whether they are inferred.
    pub(super) inferred: bool,
}

/// The end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Woken {
    /// When the wait had begun.
    pub(super) since: u64,
    pub(super) at: u64,
    pub(super) by: Option<i32>,
    /// Whether the thread had waited for work until another one ended its process.
    pub(super) was_idle: bool,
}

impl Wakes {
    pub(super) fn of(trace: &Trace, index: &Index) -> Self {
        let inferred = trace.wakes.is_empty();
        let told = || trace.wakes.iter().map(|wake| (*wake, false)).collect();
        let all: Vec<(Wake, bool)> = if inferred { infer(trace, index) } else { told() };
        let is_ours = |tid: i32| trace.threads.iter().any(|thread| thread.tid == tid);
        let mut of: HashMap<i32, Vec<Woken>> = HashMap::new();
        let mut last: HashMap<i32, u64> = HashMap::new();
        for (Wake { tid, since, at, by }, was_idle) in all {
            last.entry(tid).and_modify(|last| *last = at.max(*last)).or_insert(at);
            // What a timer or the kernel has ended is the thread's own wait.
            if by.is_some_and(|by| by != tid && is_ours(by)) {
                of.entry(tid).or_default().push(Woken { since, at, by, was_idle });
            }
        }
        for (tid, all) in &mut of {
            all.sort_by_key(|one| one.at);
            let slept_last = all.last_mut().filter(|one| last.get(tid) == Some(&one.at));
            if let Some(one) = slept_last.filter(|_| !inferred) {
                one.was_idle = is_killed(index, *tid, one);
            }
        }
        Self { of, inferred }
    }

    /// The last end of a wait of a thread's before a time.
    pub(super) fn last(&self, tid: i32, before: u64) -> Option<Woken> {
        let all = self.of.get(&tid)?;
        all[..all.partition_point(|one| one.at < before)].last().copied()
    }
}

/// Whether a thread was woken for the last time to end with its process: by a thread that began to end right after, and right
/// before it did, and it has called nothing since. A thread that is joined has begun to end before it wakes the other.
fn is_killed(index: &Index, tid: i32, woken: &Woken) -> bool {
    let killer = woken.by.and_then(|by| index.ending(by, woken.at));
    let Some((killer, ending)) = killer.zip(index.ending(tid, woken.at)) else { return false };
    let soon = woken.at..=ending.min(woken.at.saturating_add(SLACK));
    let mut calls = index.calls(tid, woken.at, ending);
    let is_right_before = ending.saturating_sub(killer) <= SLACK;
    soon.contains(&killer) && is_right_before && !calls.any(|call| call.at >= woken.at)
}

/// Waits on futexes, from looks at threads: they have ended when the thread is seen at something else. And waits for work that
/// the end of the process has ended, with the mark of these.
fn infer(trace: &Trace, index: &Index) -> Vec<(Wake, bool)> {
    let of = |thread| {
        let woken = of_thread(trace, index, thread).into_iter().map(|wake| (wake, false));
        woken.chain(killed(trace, index, thread).map(|wake| (wake, true)))
    };
    trace.threads.iter().flat_map(of).collect()
}

/// How the sleep was ended in which a thread was seen last: by its process's first thread, if that began to end meanwhile, or
/// else by the first thread that did.
fn killed(trace: &Trace, index: &Index, thread: &Thread) -> Option<Wake> {
    let ending = thread.ending?;
    let last = index.samples(thread.tid, thread.at, ending).last()?;
    let seen = last.at + last.took;
    let is_asleep = last.channel.is_some() && ending <= seen.saturating_add(SLACK);
    if !is_asleep || index.calls(thread.tid, seen, ending).any(|call| call.at >= seen) {
        return None;
    }
    let others = trace.threads.iter().filter(|one| one.pid == thread.pid && one.tid != thread.tid);
    let others = others.filter_map(|one| Some((one.tid != one.pid, one.ending?, one.tid)));
    let (_, at, by) = others.filter(|(_, at, _)| (seen..=ending).contains(at)).min()?;
    Some(Wake { tid: thread.tid, since: last.at, at, by: Some(by) })
}

fn of_thread(trace: &Trace, index: &Index, thread: &Thread) -> Vec<Wake> {
    // One that has begun to end waits for no other.
    let end = thread.ending.or(thread.gone).unwrap_or(u64::MAX);
    let samples: Vec<&Sample> = index.samples(thread.tid, thread.at, end).collect();
    let mut found = Vec::new();
    let mut since = None;
    for (number, sample) in samples.iter().enumerate() {
        if !waits_on_futex(sample) {
            since = None;
            continue;
        }
        let since = *since.get_or_insert(sample.at);
        let (seen, next) = (sample.at + sample.took, samples.get(number + 1));
        if next.is_some_and(|next| waits_on_futex(next)) {
            continue;
        }
        let call = index.calls(thread.tid, seen, end).find(|call| call.at >= seen);
        let next = call.map(|call| call.at).into_iter().chain(next.map(|next| next.at)).min();
        let next = next.filter(|next| *next <= seen.saturating_add(SLACK));
        if let Some((at, by)) = next.and_then(|next| ended_by(trace, thread, (seen, next))) {
            found.push(Wake { tid: thread.tid, since, at, by: Some(by) });
        }
    }
    found
}

/// When, between two times, and by whom a wait was ended: a thread of the process that ended then was joined; else it is
/// the only other one, if there is but one.
fn ended_by(trace: &Trace, waiter: &Thread, (from, to): (u64, u64)) -> Option<(u64, i32)> {
    let others = || {
        let mut threads = trace.threads.iter();
        std::iter::from_fn(move || {
            threads.find(|one| one.pid == waiter.pid && one.tid != waiter.tid && one.at < from)
        })
    };
    let near = |ending: u64| ending + SLACK >= from && ending <= to;
    let joined =
        others().filter_map(|one| Some((one.ending.filter(|at| near(*at))?, one.tid))).max();
    let alone = || {
        let mut there = others().filter(|one| one.gone.is_none_or(|gone| gone >= from));
        let only = there.next().filter(|_| there.next().is_none())?;
        Some((to, only.tid))
    };
    joined.map(|(at, tid)| (at.max(from), tid)).or_else(alone)
}

fn waits_on_futex(sample: &Sample) -> bool {
    let called = sample.call.is_some_and(|(number, _)| number == libc::SYS_futex as u64);
    called || sample.channel.as_deref().is_some_and(|name| name.starts_with("futex_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_thread_that_goes_on_long_after_its_waker_has_ended_was_not_killed_by_it() {
        let was_idle = |own: u64| {
            let thread =
                |tid, ending| Thread { tid, pid: 2, ending: Some(ending), ..Thread::default() };
            let wake = Wake { tid: 1, since: 0, at: 10 * MS, by: Some(2) };
            let threads = vec![thread(1, own), thread(2, 11 * MS)];
            let trace = Trace { threads, wakes: vec![wake], ..Trace::default() };
            let wakes = Wakes::of(&trace, &Index::of(&trace));
            wakes.last(1, own).unwrap().was_idle
        };
        assert!(was_idle(12 * MS) && was_idle(11 * MS + SLACK));
        assert!(!was_idle(12 * MS + SLACK));
    }
}
