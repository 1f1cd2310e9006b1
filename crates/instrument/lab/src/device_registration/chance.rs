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

    /// Puts `items` into an order, each as likely as any other.
    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        self.0.shuffle(items);
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
}
