//! What a page holds, as one number: by a key that no guest knows.
//!
//! Who knew how pages are summed could make any number of pages of one sum, and of sums that come to one chain of an index. So sums are
//! keyed. This is NH of UMAC (J. Black, S. Halevi, H. Krawczyk, T. Krovetz, P. Rogaway: *UMAC: Fast and Secure Message
//! Authentication*, CRYPTO 1999), which takes one multiplication for 8 bytes: to each word its word of the key is added, and
//! the products of the halves are summed up. Here a half may carry into the other one, which doubles the bound at most. So of
//! pages that were chosen without knowledge of the key, two have one product sum with a probability of at most 2^-31. That sum
//! is then mixed one to one, so that all bits of it depend on all of those.

use alloc::vec::Vec;
use core::fmt;

use mayfly_platform::memory::OutOfMemory;

/// Words of a page.
const WORDS: usize = 512;

/// Sums of pages' contents, by one key.
pub struct Sums {
    /// As many words as a page has.
    key: Vec<u64>,
    zeroes: u64,
}

impl Sums {
    /// With a key of numbers that no guest can guess, of which each is drawn for it alone.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`]: it takes 4 KiB.
    pub fn try_new(mut random: impl FnMut() -> u64) -> Result<Self, OutOfMemory> {
        let mut key = Vec::new();
        key.try_reserve_exact(WORDS).map_err(|_| OutOfMemory)?;
        key.extend((0..WORDS).map(|_| random()));
        let mut sums = Self { key, zeroes: 0 };
        sums.zeroes = sums.of([0; WORDS].into_iter());
        Ok(sums)
    }

    /// A number that pages with different contents hardly ever have in common: of the 512 words of a page. Of a page that is
    /// being written, of no particular contents.
    pub fn of(&self, words: impl Iterator<Item = u64>) -> u64 {
        let mut sum = 0_u64;
        for (word, key) in words.zip(&self.key) {
            let keyed = word.wrapping_add(*key);
            sum = sum.wrapping_add((keyed & u64::from(u32::MAX)) * (keyed >> 32));
        }
        mixed(sum)
    }

    /// The number of a page of zeroes.
    pub fn of_zeroes(&self) -> u64 {
        self.zeroes
    }
}

/// The key is nobody's to read.
impl fmt::Debug for Sums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sums").finish_non_exhaustive()
    }
}

/// A number for each number, and no two for one. (The last step of A. Appleby's `MurmurHash3`, of 64 bits.)
const fn mixed(sum: u64) -> u64 {
    let sum = (sum ^ sum >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let sum = (sum ^ sum >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    sum ^ sum >> 33
}

#[cfg(test)]
mod tests {
    use std::collections::hash_map::RandomState;
    use std::hash::BuildHasher;
    use std::vec;

    use super::*;
    use proptest::prelude::*;

    fn keyed() -> Sums {
        let (state, mut drawn) = (RandomState::new(), 0_u64);
        let random = || {
            drawn += 1;
            state.hash_one(drawn)
        };
        Sums::try_new(random).unwrap()
    }

    /// The paper's formula, with halves that carry, word by word.
    fn naive(key: &[u64], page: &[u64]) -> u64 {
        let product = |(key, word): (&u64, &u64)| {
            let sum = (u128::from(*key) + u128::from(*word)) % (1 << 64);
            (sum % (1 << 32)) * (sum >> 32)
        };
        let all: u128 = key.iter().zip(page).map(product).sum();
        mixed((all % (1 << 64)) as u64)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn a_sum_is_that_of_the_formula(
            key in prop::collection::vec(any::<u64>(), WORDS),
            page in prop::collection::vec(prop_oneof![Just(0), Just(u64::MAX), any::<u64>()], WORDS),
        ) {
            let mut left = key.iter().copied();
            let sums = Sums::try_new(|| left.next().unwrap()).unwrap();
            prop_assert_eq!(sums.of(page.iter().copied()), naive(&key, &page));
            prop_assert_eq!(sums.of_zeroes(), naive(&key, &[0; WORDS]));
        }
    }

    #[test]
    fn pages_that_differ_in_one_bit_or_in_its_place_have_different_sums_in_the_upper_bits_and_in_the_lower()
     {
        let keyed = keyed();
        let mut sums = vec![keyed.of_zeroes()];
        for place in 0..WORDS {
            for bit in [0, 31, 32, 63] {
                let mut page = [0; WORDS];
                page[place] = 1 << bit;
                sums.push(keyed.of(page.into_iter()));
            }
        }
        let pages = sums.len();
        let different = |part: fn(u64) -> u64| {
            let mut parts: vec::Vec<_> = sums.iter().copied().map(part).collect();
            parts.sort_unstable();
            parts.dedup();
            parts.len()
        };
        // Of 30 bits, as a page remembers, and of the bits by which an index finds a chain, few come twice by chance.
        assert!(different(|sum| sum >> 34) >= pages - 2);
        assert!(different(|sum| sum & 0xffff) >= pages * 9 / 10);
    }

    #[test]
    fn pages_that_were_chosen_for_one_key_have_other_sums_by_another() {
        let (one, other) = (keyed(), keyed());
        // Who knows the key makes a word whose product is 0, whatever its other half is.
        let page = |half: u64| {
            let mut page = [0; WORDS];
            page[7] = (half << 32).wrapping_sub(one.key[7]);
            page
        };
        let known: vec::Vec<_> = (0..64).map(|half| one.of(page(half).into_iter())).collect();
        assert!(known.iter().all(|sum| *sum == known[0]), "they are of one sum");
        let mut unknown: vec::Vec<_> =
            (0..64).map(|half| other.of(page(half).into_iter())).collect();
        unknown.sort_unstable();
        unknown.dedup();
        assert_eq!(unknown.len(), 64);
    }
}
