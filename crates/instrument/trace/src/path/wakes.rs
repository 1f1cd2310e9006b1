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
}

impl Wakes {
    pub(super) fn of(trace: &Trace, index: &Index) -> Self {
        let inferred = trace.wakes.is_empty();
        let all = if inferred { infer(trace, index) } else { trace.wakes.clone() };
        let is_ours = |tid: i32| trace.threads.iter().any(|thread| thread.tid == tid);
        let mut of: HashMap<i32, Vec<Woken>> = HashMap::new();
        for Wake { tid, since, at, by } in all {
            // What a timer or the kernel has ended is the thread's own wait.
            if by.is_some_and(|by| by != tid && is_ours(by)) {
                of.entry(tid).or_default().push(Woken { since, at, by });
            }
        }
        for all in of.values_mut() {
            all.sort_by_key(|one| one.at);
        }
        Self { of, inferred }
    }

    /// The last end of a wait of a thread's before a time.
    pub(super) fn last(&self, tid: i32, before: u64) -> Option<Woken> {
        let all = self.of.get(&tid)?;
        all[..all.partition_point(|one| one.at < before)].last().copied()
    }
}

/// Waits on futexes, from looks at threads: they have ended when the thread is seen at something else.
fn infer(trace: &Trace, index: &Index) -> Vec<Wake> {
    trace.threads.iter().flat_map(|thread| of_thread(trace, index, thread)).collect()
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
