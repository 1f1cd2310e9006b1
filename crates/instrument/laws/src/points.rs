//! Where a pair is measured.

use std::ops::RangeInclusive;

use crate::shape::whole;

/// The most points of a pair.
const MOST: usize = 15;
/// The fewest that a law is fitted to, and the fewest that it has to predict.
pub(crate) const FEWEST: usize = 6;
const FEWEST_HELD_OUT: usize = 2;
/// How many times as large as the first the last point has to be.
pub(crate) const DECADES: u64 = 100;

/// Points over all of the range, each about as many times as large as the one before, and which of them are held out:
/// every fourth, and neither the first nor the last. Nothing, if the range is shorter than two decades.
pub(crate) fn points(range: &RangeInclusive<u64>) -> Option<Vec<(u64, bool)>> {
    let (from, to) = ((*range.start()).max(1), *range.end());
    if to < from.saturating_mul(DECADES) {
        return None;
    }
    let times = (to as f64 / from as f64).ln();
    let at = |index: usize| whole(from as f64 * (times * index as f64 / (MOST - 1) as f64).exp());
    let mut all: Vec<u64> = (0..MOST).map(|index| at(index).clamp(from, to)).collect();
    all.dedup();
    let last = all.len().checked_sub(1)?;
    let all = (0..).zip(all).map(|(index, n)| (n, index % 4 == 2 && index != last));
    Some(all.collect()).filter(|all: &Vec<_>| suffice(all))
}

/// Whether a law can be fitted to points, each a number and whether it is held out, and has to predict some of them.
pub(crate) fn suffice(points: &[(u64, bool)]) -> bool {
    let held = points.iter().filter(|(_, held)| *held).count();
    let [(first, _), .., (last, _)] = points else { return false };
    held >= FEWEST_HELD_OUT
        && points.len() - held >= FEWEST
        && *last >= first.saturating_mul(DECADES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_reach_over_all_of_the_range_and_some_are_held_out() {
        for range in [1..=100, 1..=128, 1..=30_000, 100..=50_000, 16..=262_144] {
            let all = points(&range).unwrap();
            assert_eq!((all[0].0, all[all.len() - 1].0), (*range.start(), *range.end()));
            assert!(all.is_sorted_by(|one, next| one.0 < next.0), "{all:?}");
            let held = all.iter().filter(|(_, held)| *held).count();
            assert!(held >= 2 && all.len() - held >= 6, "{all:?}");
            assert!(!all[0].1 && !all[all.len() - 1].1);
        }
    }

    #[test]
    fn less_than_two_decades_are_no_range() {
        assert_eq!(points(&(1..=99)), None);
        assert_eq!(points(&(10..=999)), None);
        assert_eq!(points(&(0..=0)), None);
        assert!(points(&(0..=100)).is_some());
    }
}
