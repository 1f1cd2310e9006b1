//! Sets of the sequence's words.

use core::ops::Range;

use mayfly_platform::address::Gfn;

/// Words. In models so few that there are several, that some collide, and that a block has more than one.
pub(super) const WORDS: usize = if cfg!(any(mayfly_loom, mayfly_shuttle)) { 4 } else { 64 };

/// Pages of a region: of the larger blocks, each has many, of the smaller ones each lies in one.
pub(super) const REGION: u64 = if cfg!(any(mayfly_loom, mayfly_shuttle)) { 2 } else { 512 };

/// A set of words.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words(u64);

impl Words {
    pub(super) const NONE: Self = Self(0);

    /// Adds those of the regions that `gfns` lie in.
    pub(super) fn add(&mut self, gfns: &Range<Gfn>) {
        if gfns.start >= gfns.end {
            return;
        }
        let first = gfns.start.get() / REGION;
        let last = (gfns.end.get() - 1) / REGION;
        let words = WORDS as u64;
        let all = u64::MAX >> (u64::from(u64::BITS) - words);
        // As many bits as there are regions, from that of the first on, and around.
        let ones = all.checked_shr((words - (last - first).min(words - 1) - 1) as u32).unwrap_or(0);
        let from = first % words;
        let around = ones.checked_shr((words - from) as u32).unwrap_or(0);
        self.0 |= (ones << from | around) & all;
    }

    /// Whether those of the regions that `gfns` lie in are among them.
    pub(super) fn have(self, gfns: &Range<Gfn>) -> bool {
        let mut asked = Self::NONE;
        asked.add(gfns);
        asked.0 & !self.0 == 0
    }

    pub(super) fn each(self, mut each: impl FnMut(usize)) {
        let mut left = self.0;
        while left != 0 {
            each(left.trailing_zeros() as usize);
            left &= left - 1;
        }
    }
}

#[cfg(all(test, not(any(mayfly_loom, mayfly_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_range_are_those_of_its_regions() {
        let words = WORDS as u64;
        for first in 0..2 * words {
            for count in 1..=words + 2 {
                let mut set = Words::NONE;
                set.add(&(Gfn::new((first + 1) * REGION - 1)..Gfn::new((first + count) * REGION)));
                let expected =
                    (first..first + count).fold(0, |set, region| set | 1 << (region % words));
                assert_eq!(set.0, expected, "{count} regions from {first} on");
            }
        }
        let mut set = Words::NONE;
        set.add(&(Gfn::new(REGION)..Gfn::new(REGION)));
        assert_eq!(set.0, 0);
    }
}
