//! Random numbers that follow from a seed.

/// Splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Those of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `bound`, which is not 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Whether something happens that does `times` of `of` times.
    pub const fn is(&mut self, times: u64, of: u64) -> bool {
        self.below(of) < times
    }
}
