//! The processors that take threads.
//!
//! They are prepared together, and begin in any order: the last to begin need not be the one with the largest number.

/// The processors that take threads, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Processors(u128);

impl Processors {
    /// None.
    pub const NONE: Self = Self(0);

    /// Another one takes threads; its number is below 128.
    pub const fn add(&mut self, number: usize) {
        self.0 |= 1 << number;
    }

    /// How many they are.
    pub const fn count(self) -> u64 {
        self.0.count_ones() as u64
    }

    /// Their numbers, from the least on.
    pub fn numbers(self) -> impl Iterator<Item = usize> {
        let Self(mut left) = self;
        core::iter::from_fn(move || {
            let least = (left != 0).then(|| left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(least)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_last_to_begin_does_not_hide_the_others() {
        let mut processors = Processors::NONE;
        for number in [0, 3, 2, 1] {
            processors.add(number);
        }
        assert_eq!(processors.count(), 4);
        assert!(processors.numbers().eq(0..4));
    }

    proptest! {
        #[test]
        fn in_whatever_order_they_begin_all_that_have_begun_are_there(
            order in Just((0..128_usize).collect::<Vec<_>>()).prop_shuffle(),
            count in 0..=128_usize,
        ) {
            let mut processors = Processors::NONE;
            for (before, &number) in order[..count].iter().enumerate() {
                prop_assert_eq!(processors.count(), before as u64);
                processors.add(number);
            }
            let mut expected = order[..count].to_vec();
            expected.sort_unstable();
            prop_assert_eq!(processors.numbers().collect::<Vec<_>>(), expected);
        }
    }
}
