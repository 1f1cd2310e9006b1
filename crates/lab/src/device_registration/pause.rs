//! Pauses between VMs.

use std::time::{Duration, Instant};

/// How long a processor is kept busy after a pause, so that what is timed next does not also pay for its waking up.
const WARM_UP: Duration = Duration::from_micros(50);

/// Random pauses of up to some length, from a seed.
pub(super) struct Pauses {
    state: u64,
    longest: Duration,
}

impl Pauses {
    pub(super) fn new(seed: u64, longest: Duration) -> Self {
        Self { state: seed, longest }
    }

    pub(super) fn pause(&mut self) {
        std::thread::sleep(self.next());
        let awake = Instant::now();
        while awake.elapsed() < WARM_UP {
            std::hint::spin_loop();
        }
    }

    /// Uniform in whole nanoseconds (splitmix64; Steele, Lea and Flood, "Fast Splittable Pseudorandom Number
    /// Generators", 2014).
    fn next(&mut self) -> Duration {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        let nanos = (u128::from(bits) * self.longest.as_nanos()) >> 64;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_spread_over_the_whole_length_and_repeat_from_their_seed() {
        let longest = Duration::from_millis(8);
        let draw = |seed| {
            let mut pauses = Pauses::new(seed, longest);
            (0..1000).map(|_| pauses.next()).collect::<Vec<_>>()
        };
        let drawn = draw(1);
        assert!(drawn.iter().all(|pause| *pause < longest));
        let early = drawn.iter().filter(|pause| **pause < longest / 4).count();
        assert!((150..350).contains(&early), "{early} of 1000 in the first quarter");
        assert_eq!(drawn, draw(1));
        assert_ne!(drawn, draw(2));
    }
}
