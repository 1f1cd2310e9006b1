//! Chance that repeats from its seed.

/// A source of chance: Splitmix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014).
#[derive(Clone, Debug)]
pub struct Chance {
    state: u64,
}

impl Chance {
    /// A source that gives the same for the same seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Below `bound`, which fits into 64 bits, any number as likely as any other; 0 for a bound of 0.
    pub fn below(&mut self, bound: u128) -> u64 {
        u64::try_from((u128::from(self.next()) * bound) >> 64).unwrap_or(u64::MAX)
    }

    /// Puts `items` into an order, each as likely as any other (Fisher and Yates, 1938; Durstenfeld, 1964).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last as u128 + 1);
            items.swap(last, usize::try_from(other).unwrap_or(last));
        }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ bits >> 31
    }
}
