//! Sets of the sequence's words.

use core::ops::Range;

use mayfly_platform::address::Gfn;

/// Words. In models so few that there are several, that some collide, and that a block has more than one.
pub(super) const WORDS: usize = if cfg!(any(mayfly_loom, mayfly_shuttle)) { 4 } else { 64 };

/// Pages of a region: of the larger blocks, each has many, of the smaller ones each lies in one.
pub(super) const REGION: u64 = if cfg!(any(mayfly_loom, mayfly_shuttle)) { 2 } else { 512 };

/// All words, as bits.
const ALL: u64 = u64::MAX >> (u64::BITS as usize - WORDS);

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
        // As many bits as there are regions, from that of the first on, and around.
        let ones = ALL.checked_shr((words - (last - first).min(words - 1) - 1) as u32).unwrap_or(0);
        let from = first % words;
        let around = ones.checked_shr((words - from) as u32).unwrap_or(0);
        self.0 |= (ones << from | around) & ALL;
    }

    /// Whether those of the regions that `gfns` lie in are among them.
    pub(super) fn have(self, gfns: &Range<Gfn>) -> bool {
        let mut asked = Self::NONE;
        asked.add(gfns);
        asked.0 & !self.0 == 0
    }

    pub(super) fn each(self, mut each: impl FnMut(usize)) {
        // As where all of a VM goes: no word is looked for.
        if self.0 == ALL {
            return (0..WORDS).for_each(each);
        }
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

    #[test]
    fn each_word_of_a_set_is_visited_once() {
        for set in [0, 1, 1 << 63, 0x8421, u64::MAX >> 1, u64::MAX - 1, u64::MAX] {
            let mut visited = std::vec::Vec::new();
            Words(set).each(|word| visited.push(word));
            let expected: std::vec::Vec<_> =
                (0..WORDS).filter(|word| set >> word & 1 != 0).collect();
            assert_eq!(visited, expected, "of {set:#x}");
        }
    }
}
