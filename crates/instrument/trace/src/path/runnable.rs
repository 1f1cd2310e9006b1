//! Time on the critical paths in which a thread could have run and had no processor, outside of the calls of the record.
//!
//! It comes in many short parts, between other threads' turns. So it is added up, a thread at a time.

use std::collections::BTreeMap;

use super::index::Index;
use super::walk::Walk;
use crate::record::Trace;

/// What a thread waited for a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Runnable {
    pub(crate) tid: i32,
    /// From the first time that something hung on the thread to the last.
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// How long something hung on it, outside of calls.
    pub(crate) hung: u64,
    /// How long it waited for a processor in this time.
    pub(crate) took: u64,
}

impl Trace {
    /// The threads that waited for a processor for as long as a wait is, the longest first.
    pub(crate) fn runnable(&self) -> Vec<Runnable> {
        let index = Index::of(self);
        let mut stretches: BTreeMap<i32, Vec<(u64, u64)>> = BTreeMap::new();
        for Walk { stretches: one, .. } in self.walks(&index) {
            for stretch in one {
                stretches.entry(stretch.tid).or_default().push((stretch.from, stretch.to));
            }
        }
        let found = stretches.into_iter().filter_map(|(tid, all)| of_thread(&index, tid, all));
        let mut found: Vec<Runnable> = found.filter(|one| one.took >= self.least()).collect();
        found.sort_by_key(|one| std::cmp::Reverse(one.took));
        found
    }
}

fn of_thread(index: &Index, tid: i32, mut stretches: Vec<(u64, u64)>) -> Option<Runnable> {
    stretches.sort_unstable();
    let from = stretches.first()?.0;
    let (mut now, mut hung, mut took) = (0, 0, 0);
    for (begun, to) in stretches {
        // Two VMs may hang on one thread at one time.
        now = begun.max(now);
        for call in index.calls(tid, now, to) {
            let until = call.at.min(to);
            let spent = index.spent(tid, now, until.max(now)).unwrap_or_default();
            (hung, took) = (hung + until.saturating_sub(now), took + spent.queued);
            now = now.max(call.end());
        }
        if now < to {
            let spent = index.spent(tid, now, to).unwrap_or_default();
            (hung, took) = (hung + to - now, took + spent.queued);
            now = to;
        }
    }
    Some(Runnable { tid, from, to: now, hung, took })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Account, Call};

    #[test]
    fn time_without_a_processor_is_added_up_once_and_that_of_calls_is_not_in_it() {
        // It runs for 10, and could run for 10, in turns.
        let mut accounts = Vec::new();
        for turn in 0..10 {
            let account = |at, ran, queued| Account { tid: 7, at, ran, queued };
            accounts.push(account(20 * turn, 10 * turn, 10 * turn));
            accounts.push(account(20 * turn + 10, 10 * turn + 10, 10 * turn));
        }
        let call = Call { tid: 7, at: 40, took: Some(40), ..Call::default() };
        let trace = Trace { accounts, calls: vec![call], ..Trace::default() };
        let found = of_thread(&Index::of(&trace), 7, vec![(100, 140), (0, 100), (20, 60)]).unwrap();
        let Runnable { from, to, hung, took, .. } = found;
        assert_eq!((from, to, hung, took), (0, 140, 100, 50));
        assert_eq!(of_thread(&Index::of(&trace), 7, vec![]), None);
    }
}
