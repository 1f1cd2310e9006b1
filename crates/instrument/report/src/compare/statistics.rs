//! Whether two medians differ.

use mayfly_record::Chance;

/// Rounds below which nothing can be said.
pub(super) const FEWEST: usize = 6;

/// The most that the middle half of a steady metric's rounds spans, as a share of their median.
const STEADY: f64 = 0.08;

/// How often rounds are drawn, on either side.
const DRAWS: usize = 200;

/// So that the same records give the same answer.
const SEED: u64 = 0x6d61_7966_6c79;

/// A difference of two medians, as a ratio's logarithm.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Change {
    log: f64,
    error: f64,
    margin: f64,
}

impl Change {
    /// From `base` to `new`, each a list of samples a round. None where there are too few rounds, or a median is 0.
    pub(super) fn of(base: &[Vec<u64>], new: &[Vec<u64>], least: f64) -> Option<Self> {
        if base.len() < FEWEST || new.len() < FEWEST {
            return None;
        }
        let log = median_log(new.iter())? - median_log(base.iter())?;
        let mut chance = Chance::new(SEED);
        let error = spread(base, &mut chance)?.hypot(spread(new, &mut chance)?);
        let margin = [base, new].into_iter().filter_map(drift).fold(least.ln(), f64::max);
        Some(Self { log, error, margin })
    }

    pub(super) fn is_more(&self) -> bool {
        self.log > 0.0
    }

    /// What the ratio has to be beyond, or below one over it.
    pub(super) fn margin(&self) -> f64 {
        self.margin.exp()
    }

    /// Where the ratio lies, at 95 %.
    pub(super) fn interval(&self) -> [f64; 2] {
        [self.log - 1.96 * self.error, self.log + 1.96 * self.error].map(f64::exp)
    }

    /// The chance of a ratio at least so far beyond the margin, to either side, where it truly lies on it.
    pub(super) fn p_value(&self) -> f64 {
        let beyond = self.log.abs() - self.margin;
        if beyond <= 0.0 {
            return 1.0;
        }
        (2.0 * upper_tail(beyond / self.error)).min(1.0)
    }
}

/// How far the median's logarithm is off, as a standard deviation, by drawing rounds with replacement. Not less than half a
/// unit of what is measured: clocks do not show less.
fn spread(rounds: &[Vec<u64>], chance: &mut Chance) -> Option<f64> {
    let logs: Vec<f64> = (0..DRAWS)
        .filter_map(|_| {
            let drawn =
                (0..rounds.len()).map(|_| &rounds[chance.below(rounds.len() as u128) as usize]);
            median_log(drawn.collect::<Vec<_>>().into_iter())
        })
        .collect();
    let mean = logs.iter().sum::<f64>() / logs.len() as f64;
    let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / logs.len() as f64;
    let clock = 0.5 / median_log(rounds.iter())?.exp();
    Some(variance.sqrt().max(clock))
}

/// How far the median of the first half of the rounds is from that of the second.
fn drift(rounds: &[Vec<u64>]) -> Option<f64> {
    let (first, second) = rounds.split_at(rounds.len() / 2);
    Some((median_log(first.iter())? - median_log(second.iter())?).abs())
}

/// Whether the rounds of a run hardly differ. What hardly differs between rounds mostly differs little between runs, too
/// (`make compare-check` counts how often it does not); of what differs more, nothing can be foretold.
pub(super) fn is_steady(rounds: &[Vec<u64>]) -> bool {
    let mut medians: Vec<u64> =
        rounds.iter().filter_map(|round| median_of(round.clone())).collect();
    medians.sort_unstable();
    if medians.len() < FEWEST {
        return false;
    }
    let at = |quarter: usize| medians[(medians.len() - 1) * quarter / 4] as f64;
    at(3) - at(1) <= STEADY * at(2)
}

fn median_log<'a>(rounds: impl Iterator<Item = &'a Vec<u64>>) -> Option<f64> {
    let median = median_of(rounds.flatten().copied().collect())?;
    (median > 0).then(|| (median as f64).ln())
}

fn median_of(mut samples: Vec<u64>) -> Option<u64> {
    let middle = samples.len().div_ceil(2).checked_sub(1)?;
    Some(*samples.select_nth_unstable(middle).1)
}

/// The chance that a standard normal variable is above `z`, which is not negative, to seven digits (Abramowitz and Stegun,
/// "Handbook of Mathematical Functions", 26.2.17).
fn upper_tail(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z);
    let series = t
        * (0.319_381_530
            + t * (-0.356_563_782
                + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429))));
    (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * series
}

/// The p-values, corrected for their number.
pub(super) fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|a, b| p_values[*a].total_cmp(&p_values[*b]));
    let mut corrected = vec![1.0; p_values.len()];
    let mut least = 0.0_f64;
    for (rank, at) in order.into_iter().enumerate() {
        least = least.max((p_values[at] * (p_values.len() - rank) as f64).min(1.0));
        corrected[at] = least;
    }
    corrected
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holms_correction_is_that_of_the_textbook() {
        let corrected = holm(&[0.01, 0.04, 0.03, 0.005]);
        let expected = [0.03, 0.06, 0.06, 0.02];
        for (corrected, expected) in corrected.iter().zip(expected) {
            assert!((corrected - expected).abs() < 1e-12, "{corrected} {expected}");
        }
        assert!(holm(&[]).is_empty());
    }

    #[test]
    fn the_tail_is_that_of_the_table() {
        for (z, chance) in [(0.0, 0.5), (1.0, 0.158_655), (1.96, 0.024_998), (3.0, 0.001_350)] {
            assert!((upper_tail(z) - chance).abs() < 1e-5, "{z}");
        }
    }

    #[test]
    fn the_interval_has_the_ratio_in_it_and_grows_with_the_spread() {
        let rounds =
            |of: &dyn Fn(u64) -> u64| (0..40).map(|round| vec![of(round)]).collect::<Vec<_>>();
        let still = rounds(&|_| 10_000);
        let near = rounds(&|round| 12_000 + round * 7 % 40 * 10);
        let wide = rounds(&|round| 12_000 + round * 7 % 40 * 200);
        let width = |new: &[Vec<u64>]| {
            let [low, high] = Change::of(&still, new, 1.1).unwrap().interval();
            high - low
        };
        let [low, high] = Change::of(&still, &near, 1.1).unwrap().interval();
        assert!(low < 1.22 && high > 1.21, "{low} {high}");
        assert!(width(&wide) > 3.0 * width(&near));
    }

    #[test]
    fn what_hardly_differs_between_rounds_is_steady() {
        let rounds = |step: u64| (0..20).map(|n| vec![10_000 + n * step]).collect::<Vec<_>>();
        assert!(is_steady(&rounds(0)) && is_steady(&rounds(70)));
        assert!(!is_steady(&rounds(120)));
        assert!(!is_steady(&rounds(0)[..5]), "of few rounds nothing is known");
        let mut outlier = rounds(0);
        outlier[7] = vec![1_000_000, 1_000_000, 1];
        assert!(is_steady(&outlier), "one round is no spread");
    }

    #[test]
    fn of_few_rounds_or_of_nothing_nothing_is_said() {
        let (few, many) = (vec![vec![5; 100]; 5], vec![vec![5; 100]; 6]);
        assert_eq!(Change::of(&few, &many, 1.1), None);
        assert_eq!(Change::of(&many, &vec![vec![0; 9]; 6], 1.1), None);
        assert_eq!(Change::of(&many, &vec![Vec::new(); 6], 1.1), None);
        assert!(Change::of(&many, &many, 1.1).is_some());
    }
}
