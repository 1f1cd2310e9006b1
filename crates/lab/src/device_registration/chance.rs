//! What is left to chance, from a seed: how long to pause before a VM, and whose turn it is.

use std::time::Duration;

use crate::turns::pause;

/// A source of chance that repeats from its seed.
pub(super) struct Chance(mayfly_record::Chance);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self(mayfly_record::Chance::new(seed))
    }

    /// Sleeps for less than `longest`, any time as likely as any other, and leaves the processor awake.
    pub(super) fn pause(&mut self, longest: Duration) {
        pause(self.time_below(longest));
    }

    /// Puts `items` into an order, each as likely as any other (Fisher and Yates, 1938; Durstenfeld, 1964).
    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.0.below(last as u128 + 1);
            items.swap(last, usize::try_from(other).unwrap_or(last));
        }
    }

    fn time_below(&mut self, longest: Duration) -> Duration {
        Duration::from_nanos(self.0.below(longest.as_nanos()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_spread_over_the_whole_length_and_repeat_from_their_seed() {
        let longest = Duration::from_millis(8);
        let draw = |seed| {
            let mut chance = Chance::new(seed);
            (0..1000).map(|_| chance.time_below(longest)).collect::<Vec<_>>()
        };
        let drawn = draw(1);
        assert!(drawn.iter().all(|pause| *pause < longest));
        let early = drawn.iter().filter(|pause| **pause < longest / 4).count();
        assert!((150..350).contains(&early), "{early} of 1000 in the first quarter");
        assert_eq!(drawn, draw(1));
        assert_ne!(drawn, draw(2));
    }

    #[test]
    fn every_item_comes_to_follow_every_other() {
        let mut chance = Chance::new(1);
        let mut items = [0, 1, 2, 3];
        let mut followed = [[0; 4]; 4];
        for _ in 0..1000 {
            chance.shuffle(&mut items);
            for pair in items.windows(2) {
                followed[pair[0]][pair[1]] += 1;
            }
            let mut sorted = items;
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3]);
        }
        for (first, counts) in followed.iter().enumerate() {
            for (second, &count) in counts.iter().enumerate() {
                let expected = if first == second { 0..1 } else { 180..320 };
                assert!(expected.contains(&count), "{second} after {first}: {count} of 1000");
            }
        }
    }
}
