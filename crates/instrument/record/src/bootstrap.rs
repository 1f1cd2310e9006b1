//! How sure a median is: an interval by resampling.
//!
//! Samples within a round are not independent (they share the host's moment, the caches, a VM), so whole rounds are drawn,
//! with replacement, as many as there are; the median of all their samples is one value of many, and the interval is
//! where the middle 95 % of these lie (Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13).

use crate::chance::Chance;

/// Rounds below which nothing can be said: of five, the middle 95 % of what can be drawn is all of it.
const FEWEST: usize = 6;

/// How often rounds are drawn. The ends of the interval are then themselves known to a few per cent of its width.
const DRAWS: usize = 1000;

/// So that the same samples give the same interval.
const SEED: u64 = 0x6d61_7966_6c79;

/// The interval of the median of all samples, at 95 %; `None` where there are too few rounds.
pub(crate) fn interval(rounds: &[&[u64]]) -> Option<[u64; 2]> {
    if rounds.len() < FEWEST {
        return None;
    }
    // Sorted once, so that the median of what is drawn is found by walking to the middle.
    let mut sorted: Vec<(u64, usize)> = (0..)
        .zip(rounds)
        .flat_map(|(round, samples)| samples.iter().map(move |sample| (*sample, round)))
        .collect();
    sorted.sort_unstable();
    let mut chance = Chance::new(SEED);
    let mut medians: Vec<u64> = (0..DRAWS)
        .filter_map(|_| {
            let mut drawn = vec![0_u64; rounds.len()];
            for _ in 0..rounds.len() {
                drawn[chance.below(rounds.len() as u128) as usize] += 1;
            }
            median(&sorted, &drawn, rounds)
        })
        .collect();
    medians.sort_unstable();
    middle(&medians)
}

/// Where the middle 95 % of what was drawn lie, which is sorted; `None` where nothing was.
pub fn middle<T: Copy>(sorted: &[T]) -> Option<[T; 2]> {
    let at = |share: usize| sorted.get(sorted.len() * share / 1000).copied();
    Some([at(25)?, at(974)?])
}

/// The median of the samples of all rounds, each as often as it was drawn.
fn median(sorted: &[(u64, usize)], drawn: &[u64], rounds: &[&[u64]]) -> Option<u64> {
    let count: u64 =
        rounds.iter().zip(drawn).map(|(round, times)| round.len() as u64 * times).sum();
    let mut left = count.div_ceil(2);
    let mut samples = sorted.iter();
    loop {
        let (sample, round) = samples.next()?;
        left = left.saturating_sub(drawn[*round]);
        if left == 0 {
            return (count > 0).then_some(*sample);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of `each` samples around a middle, where rounds differ from each other by up to `between` and samples of
    /// one round by up to `within`.
    fn rounds(seed: u64, count: usize, each: usize, between: u128, within: u128) -> Vec<Vec<u64>> {
        let mut chance = Chance::new(seed);
        let mut round = || {
            let middle = 100_000 + chance.below(between + 1);
            (0..each).map(|_| middle + chance.below(within + 1)).collect()
        };
        (0..count).map(|_| round()).collect()
    }

    fn of(rounds: &[Vec<u64>]) -> Option<[u64; 2]> {
        interval(&rounds.iter().map(Vec::as_slice).collect::<Vec<_>>())
    }

    #[test]
    fn fewer_than_six_rounds_say_nothing_however_many_samples_they_have() {
        assert_eq!(of(&rounds(1, 5, 1000, 100, 100)), None);
        assert!(of(&rounds(1, 6, 1, 100, 100)).is_some());
    }

    #[test]
    fn the_interval_has_the_true_median_in_about_95_of_100_repetitions() {
        // Uniform from 100,000 to 102,000 between rounds of one sample each: the true median is 101,000.
        let holds = |seed: &u64| {
            let [low, high] = of(&rounds(*seed, 40, 1, 2000, 0)).unwrap();
            (low..=high).contains(&101_000)
        };
        let held = (0..400).filter(holds).count();
        assert!((368..=396).contains(&held), "{held} of 400");
    }

    #[test]
    fn many_samples_of_a_round_are_no_more_than_a_round() {
        // By sample, a thousand times as many would make it thirty times as narrow.
        let width = |each| {
            let [low, high] = of(&rounds(7, 20, each, 2000, 10)).unwrap();
            high - low
        };
        assert!(width(1000) * 2 > width(1), "{} beside {}", width(1000), width(1));
    }

    #[test]
    fn rounds_that_do_not_differ_give_the_value_itself() {
        assert_eq!(of(&vec![vec![5, 5, 5]; 6]), Some([5, 5]));
        assert_eq!(of(&vec![Vec::new(); 6]), None);
    }
}
