//! Choices that can be made again.

use std::hash::{BuildHasher, RandomState};

/// `SplitMix64` (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014).
pub(crate) struct Random(u64);

impl Random {
    /// From `MAYFLY_SEED`, or from somewhere; says which.
    pub(crate) fn seeded() -> Self {
        let seed = std::env::var("MAYFLY_SEED").ok().map_or_else(
            || RandomState::new().hash_one(0),
            |seed| seed.parse().expect("MAYFLY_SEED is a number"),
        );
        println!("MAYFLY_SEED={seed}");
        Self(seed)
    }

    /// A generator of its own for a thread.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Less than `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// One time in `times`.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}
