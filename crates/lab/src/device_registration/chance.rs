//! What is left to chance, from a seed: how long to pause before a VM, and whose turn it is.

use std::time::Duration;

use crate::turns::pause;

/// A source of chance that repeats from its seed.
pub(super) struct Chance {
    state: u64,
}

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Sleeps for less than `longest`, any time as likely as any other, and leaves the processor awake.
    pub(super) fn pause(&mut self, longest: Duration) {
        pause(self.time_below(longest));
    }

    /// Puts `items` into an order, each as likely as any other (Fisher and Yates, 1938; Durstenfeld, 1964).
    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last as u128 + 1);
            items.swap(last, usize::try_from(other).unwrap_or(last));
        }
    }

    fn time_below(&mut self, longest: Duration) -> Duration {
        Duration::from_nanos(self.below(longest.as_nanos()))
    }

    /// Below `bound`, which fits into 64 bits; 0 for a bound of 0.
    fn below(&mut self, bound: u128) -> u64 {
        u64::try_from((u128::from(self.next()) * bound) >> 64).unwrap_or(u64::MAX)
    }

    /// Splitmix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014).
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ bits >> 31
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
