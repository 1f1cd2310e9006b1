//! Sleeps of which each is too short to be a wait, and which together are as long as one.

use std::collections::BTreeMap;

use super::walk::Wait;
use crate::record::Trace;

/// Fewer are no habit.
const FEWEST: u64 = 8;

/// Those of each thread, or of each thread and kind, as one; but for what meets a wait that is listed. `is_taken` says so.
pub(crate) fn sums<K: Ord>(
    trace: &Trace,
    short: impl IntoIterator<Item = (K, Wait)>,
    is_taken: impl Fn(&Wait) -> bool,
) -> Vec<Wait> {
    let sums = groups(short, is_taken).into_iter().filter_map(|all| sum(&all));
    sums.filter(|one| is_wait(trace, one)).collect()
}

/// The same of kinds that may have the same sleeps, as paths that lead over one thread have: a sleep counts in the longest sum
/// that has it, and in no other.
pub(crate) fn sums_apart<K: Ord>(
    trace: &Trace,
    short: impl IntoIterator<Item = (K, Wait)>,
    is_taken: impl Fn(&Wait) -> bool,
) -> Vec<Wait> {
    let mut groups = groups(short, is_taken);
    let mut found = Vec::new();
    // By thread and beginning, when each sleep that is counted ended. Those of one thread do not overlap.
    let mut counted: BTreeMap<(i32, u64), u64> = BTreeMap::new();
    loop {
        let sums = groups.iter().enumerate().filter_map(|(at, all)| Some((at, sum(all)?)));
        let sums = sums.filter(|(_, one)| is_wait(trace, one));
        let Some((at, longest)) = sums.max_by_key(|(_, one)| one.slept) else { return found };
        found.push(longest);
        let own = groups.swap_remove(at);
        counted.extend(own.into_iter().map(|one| ((one.tid, one.from), one.to)));
        let is_counted = |one: &Wait| {
            let mut before = counted.range((one.tid, 0)..(one.tid, one.to.max(one.from + 1)));
            before.next_back().is_some_and(|((_, from), to)| *to > one.from || *from == one.from)
        };
        for all in &mut groups {
            all.retain(|one| !is_counted(one));
        }
    }
}

/// Whether short sleeps come to a wait.
fn is_wait(trace: &Trace, sum: &Wait) -> bool {
    sum.times >= FEWEST && sum.slept >= trace.least()
}

/// Those of each kind, in the order of their beginnings; one that was found twice is there once.
fn groups<K: Ord>(
    short: impl IntoIterator<Item = (K, Wait)>,
    is_taken: impl Fn(&Wait) -> bool,
) -> Vec<Vec<Wait>> {
    let mut of: BTreeMap<K, Vec<Wait>> = BTreeMap::new();
    for (kind, one) in short {
        if !is_taken(&one) {
            of.entry(kind).or_default().push(one);
        }
    }
    let mut groups: Vec<Vec<Wait>> = of.into_values().collect();
    for all in &mut groups {
        all.sort_by_key(|one| (one.from, one.to));
        all.dedup_by_key(|one| one.from);
    }
    groups
}

/// Waits of one thread as one.
fn sum(all: &[Wait]) -> Option<Wait> {
    let first = *all.first()?;
    // It is said who ended them if that was always the same thread.
    let is_same = all.iter().all(|one| one.by == first.by);
    Some(Wait {
        to: all.iter().map(|one| one.to).max()?,
        by: first.by.filter(|_| is_same),
        times: all.iter().map(|one| one.times).sum(),
        slept: all.iter().map(|one| one.slept).sum(),
        ..first
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// So many sleeps of 300 us, a millisecond apart, of threads in turns.
    fn short(count: u64, threads: u64) -> impl Iterator<Item = (i32, Wait)> {
        (0..count).map(move |number| {
            let (tid, from) = ((number % threads) as i32, number * MS);
            (tid, Wait::once(tid, (from, from + 300_000), Some(9)))
        })
    }

    #[test]
    fn many_short_sleeps_are_one_wait_of_their_thread() {
        let trace = Trace::default();
        let found = sums(&trace, short(20, 1), |_| false);
        let one = Wait { times: 20, slept: 6 * MS, ..Wait::once(0, (0, 19_300_000), Some(9)) };
        assert_eq!(found, [one]);
        // One that was found twice counts once.
        assert_eq!(sums(&trace, short(20, 1).chain(short(20, 1)), |_| false), [one]);
        let of_two = sums(&trace, short(40, 2), |_| false);
        assert_eq!(
            of_two.iter().map(|one| (one.tid, one.times)).collect::<Vec<_>>(),
            [(0, 20), (1, 20)]
        );
    }

    #[test]
    fn few_sleeps_and_a_short_sum_and_what_is_listed_already_are_none() {
        let trace = Trace::default();
        assert_eq!(sums(&trace, short(FEWEST - 1, 1), |_| false), []);
        let tiny = |_: u64| short(20, 1).map(|(tid, one)| (tid, Wait { slept: 40_000, ..one }));
        assert_eq!(sums(&trace, tiny(20), |_| false), []);
        assert_eq!(sums(&trace, short(20, 1), |one| one.from >= 5 * MS), []);
    }

    #[test]
    fn a_sleep_that_two_paths_have_counts_in_the_longer_one() {
        let of = |path: u64, from: u64, to: u64| {
            short(to, 1).skip(from as usize).map(move |(tid, one)| ((tid, path), one))
        };
        let trace = Trace::default();
        let told = |short: Vec<((i32, u64), Wait)>| -> Vec<(u64, u64)> {
            let found = sums_apart(&trace, short, |_| false);
            found.iter().map(|one| (one.from / MS, one.times)).collect()
        };
        let both = [of(0, 0, 20).collect(), of(1, 0, 20).collect::<Vec<_>>()].concat();
        assert_eq!(told(both), [(0, 20)]);
        // What the shorter one has alone is a wait where it is one by itself.
        let long = || of(0, 0, 40).collect::<Vec<_>>();
        assert_eq!(told([long(), of(1, 30, 60).collect()].concat()), [(0, 40), (40, 20)]);
        assert_eq!(told([of(1, 30, 45).collect(), long()].concat()), [(0, 40)]);
        // A path may begin in the midst of a sleep.
        let cut = of(1, 5, 20).map(|(path, one)| {
            let from = one.from + 100_000;
            (path, Wait { from, slept: one.to - from, ..one })
        });
        assert_eq!(told([long(), cut.collect()].concat()), [(0, 40)]);
        // Two threads sleep by themselves.
        let other = of(1, 0, 20).map(|((_, path), one)| ((7, path), Wait { tid: 7, ..one }));
        assert_eq!(told([long(), other.collect()].concat()), [(0, 40), (0, 20)]);
    }

    #[test]
    fn who_ended_them_is_said_where_it_was_one_thread() {
        let mixed = short(20, 1)
            .map(|(tid, one)| (tid, Wait { by: Some((one.from / MS % 2) as i32), ..one }));
        assert_eq!(sums(&Trace::default(), mixed, |_| false)[0].by, None);
    }
}
