//! What a thread under torture does next.

use std::thread;
use std::time::Duration;

/// Numbers that look random, the same for the same seed (xorshift64*, Vigna 2016).
pub(crate) struct Choices(u64);

impl Choices {
    pub(crate) fn new(seed: u64, thread: u64) -> Self {
        Self((seed ^ (thread + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % bound
    }

    /// Passes no time, mostly; or some, on the CPU or asleep. Returns whether it slept.
    pub(crate) fn delay(&mut self) -> bool {
        match self.below(200) {
            0 => thread::sleep(Duration::from_micros(self.below(2_000))),
            1..=5 => thread::sleep(Duration::from_micros(self.below(50))),
            6..=15 => {
                thread::yield_now();
                return false;
            }
            16..=60 => {
                (0..self.below(500)).for_each(|_| std::hint::spin_loop());
                return false;
            }
            _ => return false,
        }
        true
    }
}
