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
    let mut of: BTreeMap<K, Vec<Wait>> = BTreeMap::new();
    for (kind, one) in short {
        if !is_taken(&one) {
            of.entry(kind).or_default().push(one);
        }
    }
    let sums = of.into_values().filter_map(sum);
    sums.filter(|one| one.times >= FEWEST && one.slept >= trace.least()).collect()
}

/// Waits of one thread as one; each counts once, in whatever order they come.
fn sum(mut all: Vec<Wait>) -> Option<Wait> {
    all.sort_by_key(|one| (one.from, one.to));
    all.dedup_by_key(|one| one.from);
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
    fn who_ended_them_is_said_where_it_was_one_thread() {
        let mixed = short(20, 1)
            .map(|(tid, one)| (tid, Wait { by: Some((one.from / MS % 2) as i32), ..one }));
        assert_eq!(sums(&Trace::default(), mixed, |_| false)[0].by, None);
    }
}
