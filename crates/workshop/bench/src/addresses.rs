//! Addresses to look up, drawn before anything is timed.

use std::cell::Cell;

/// How many addresses are drawn. A branch predictor of today learns a sequence of 4096 by heart (the slower of two
/// lookups then looks twice as fast as it is), and not one of this length. It is read in order, so the prefetcher hides
/// where it lies.
pub const DRAWN: usize = 1 << 16;

/// [`DRAWN`] addresses, taken round and round.
#[derive(Clone, Debug)]
pub struct Addresses {
    drawn: Box<[u64; DRAWN]>,
    taken: Cell<usize>,
}

impl Addresses {
    /// Uniformly over `ranges` ranges, range `i` being the `len` addresses from `i * stride` on; multiples of `align`.
    pub fn uniform(ranges: u64, stride: u64, len: u64, align: u64) -> Self {
        let mut random = Xorshift(0x9e37_79b9_7f4a_7c15);
        Self::drawn(|| {
            let range = random.below(ranges);
            range * stride + random.below(len / align) * align
        })
    }

    /// The same address each time.
    pub fn same(address: u64) -> Self {
        Self::drawn(|| address)
    }

    fn drawn(draw: impl FnMut() -> u64) -> Self {
        let drawn: Box<[u64]> = std::iter::repeat_with(draw).take(DRAWN).collect();
        Self { drawn: drawn.try_into().expect("so many were drawn"), taken: Cell::new(0) }
    }

    /// The next `count` of them.
    #[inline]
    pub fn take(&self, count: u32) -> impl Iterator<Item = u64> {
        let first = self.taken.get();
        let end = first + count as usize;
        self.taken.set(end % DRAWN);
        (first..end).map(|i| self.drawn[i % DRAWN])
    }
}

/// Marsaglia's generator, 64 bits: the same numbers in each run.
struct Xorshift(u64);

impl Xorshift {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        // The upper half of the product: uniform but for one part in 2^64 / bound.
        ((u128::from(self.0) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_drawn_lies_in_a_range_and_every_range_has_some() {
        let addresses = Addresses::uniform(8, 0x2000, 0x1000, 4);
        let mut seen = [false; 8];
        for address in addresses.take(DRAWN as u32) {
            assert!(address % 0x2000 < 0x1000 && address % 4 == 0, "{address:#x}");
            seen[(address / 0x2000) as usize] = true;
        }
        assert_eq!(seen, [true; 8]);
    }

    #[test]
    fn taking_goes_on_where_it_stopped() {
        let addresses = Addresses::uniform(512, 0x2000, 0x1000, 8);
        let all: Vec<_> = addresses.clone().take(DRAWN as u32).collect();
        let parts: Vec<_> =
            addresses.take(5).chain(addresses.take(7)).chain(addresses.take(1)).collect();
        assert_eq!(parts, all[..13]);
    }
}
