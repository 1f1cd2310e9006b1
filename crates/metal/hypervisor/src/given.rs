//! Which pages of a memory were given a frame, for a memory that goes back to what it was before that.
//!
//! Memory is counted in blocks of [`PAGES`] pages. [`Blocks`] has a bit for each block that has any such page. Which pages
//! those are is found by the caller, for one block at a time: [`Runs`] asks for them in order, each block once.

use core::cell::Cell;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use alloc::vec::Vec;
use mayfly_vm::platform::memory::OutOfMemory;

/// Pages of a block.
pub const PAGES: usize = 512;

const BITS: usize = u64::BITS as usize;
const WORDS: usize = PAGES / BITS;

/// A bit for each block. One caller at a time changes them.
#[derive(Debug)]
pub struct Blocks(Vec<AtomicU64>);

impl Blocks {
    /// Bytes of heap for so many blocks.
    pub const fn heap_bytes(blocks: usize) -> usize {
        blocks.div_ceil(BITS) * size_of::<u64>()
    }

    /// So many blocks, none of which has any page.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`].
    pub fn try_new(blocks: usize) -> Result<Self, OutOfMemory> {
        let mut words = Vec::new();
        let count = blocks.div_ceil(BITS);
        words.try_reserve_exact(count).map_err(|_| OutOfMemory)?;
        words.resize_with(count, || AtomicU64::new(0));
        Ok(Self(words))
    }

    /// Block `number` has a page.
    pub fn insert(&self, number: usize) {
        self.0[number / BITS].fetch_or(1 << (number % BITS), Ordering::Relaxed);
    }

    /// Block `number` has no page any more.
    pub fn remove(&self, number: usize) {
        self.0[number / BITS].fetch_and(!(1 << (number % BITS)), Ordering::Relaxed);
    }

    /// The first block from `from` on that has a page.
    pub fn next(&self, from: usize) -> Option<usize> {
        let word = |number: usize| Some(self.0.get(number)?.load(Ordering::Relaxed));
        let (number, found) = first_word(from, word)?;
        Some(number * BITS + found.trailing_zeros() as usize)
    }
}

/// The pages of one block: a bit each.
#[derive(Debug, Default)]
pub struct Pages([Cell<u64>; WORDS]);

impl Pages {
    /// Has none, or all, of them.
    pub fn set_all(&self, all: bool) {
        self.0.iter().for_each(|bits| bits.set(if all { !0 } else { 0 }));
    }

    /// Has page `page` as well, of those of the block.
    pub fn insert(&self, page: usize) {
        let bits = &self.0[page / BITS % WORDS];
        bits.set(bits.get() | 1 << (page % BITS));
    }

    /// Whether it has page `page`, of those of the block.
    pub fn contains(&self, page: usize) -> bool {
        self.0[page / BITS % WORDS].get() >> (page % BITS) & 1 != 0
    }

    /// The first pages from `from` on that it has, and that follow each other; perhaps not all that do.
    fn next(&self, from: usize) -> Option<Range<usize>> {
        let (number, found) = first_word(from, |number| Some(self.0.get(number)?.get()))?;
        let first = found.trailing_zeros();
        let count = (!(found >> first)).trailing_zeros();
        let start = number * BITS + first as usize;
        Some(start..start + count as usize)
    }
}

/// The first word with a bit from bit `from` on: its number, and its bits from there on.
#[inline]
fn first_word(from: usize, word: impl Fn(usize) -> Option<u64>) -> Option<(usize, u64)> {
    let (mut number, mut mask) = (from / BITS, !0 << (from % BITS));
    loop {
        let found = word(number)? & mask;
        if found != 0 {
            return Some((number, found));
        }
        (number, mask) = (number + 1, !0);
    }
}

/// The pages of a memory that were given a frame, in order. `find` finds those of a block.
pub struct Runs<'a, F> {
    blocks: &'a Blocks,
    find: F,
    /// The block whose pages these are.
    present: Cell<usize>,
    pages: Pages,
}

impl<'a, F: Fn(usize, &Pages)> Runs<'a, F> {
    /// Those of `blocks`. They change no more.
    pub fn new(blocks: &'a Blocks, find: F) -> Self {
        Self { blocks, find, present: Cell::new(usize::MAX), pages: Pages::default() }
    }

    /// The first pages from `from` on that follow each other; perhaps not all that do. An empty range, if there are none.
    pub fn next(&self, from: u64) -> Range<u64> {
        let mut page = usize::try_from(from).unwrap_or(usize::MAX);
        loop {
            let number = page / PAGES;
            if number == self.present.get() {
                if let Some(found) = self.pages.next(page % PAGES) {
                    let first = number * PAGES;
                    return (first + found.start) as u64..(first + found.end) as u64;
                }
                page = (number + 1) * PAGES;
            }
            let Some(next) = self.blocks.next(page / PAGES) else { return u64::MAX..u64::MAX };
            page = page.max(next * PAGES);
            if self.present.replace(next) != next {
                (self.find)(next, &self.pages);
            }
        }
    }
}

impl<F> core::fmt::Debug for Runs<'_, F> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Runs").field("present", &self.present).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const BLOCKS: usize = 200;

    fn runs(given: &BTreeSet<u64>, blocks: &Blocks) -> Vec<u64> {
        let asked = Cell::new(0);
        let find = |number: usize, pages: &Pages| {
            asked.set(asked.get() + 1);
            pages.set_all(false);
            let first = (number * PAGES) as u64;
            for page in given.range(first..first + PAGES as u64) {
                pages.insert((page - first) as usize);
            }
        };
        let (runs, mut found, mut from) = (Runs::new(blocks, find), Vec::new(), 0);
        loop {
            let next = runs.next(from);
            if next.is_empty() {
                break;
            }
            assert!(next.start >= from, "{next:?} from {from}");
            assert_eq!(runs.next(next.start), next, "asked again");
            found.extend(next.clone());
            from = next.end;
        }
        let with_pages: BTreeSet<_> = given.iter().map(|page| page / PAGES as u64).collect();
        assert_eq!(asked.get(), with_pages.len(), "each block is looked at once");
        found
    }

    proptest! {
        #[test]
        fn exactly_the_pages_that_were_given_are_found_in_order(
            starts in proptest::collection::vec((0..(BLOCKS * PAGES) as u64, 1..200_u64), 0..30),
            gone in proptest::collection::vec(0..BLOCKS, 0..4),
        ) {
            let blocks = Blocks::try_new(BLOCKS).unwrap();
            let mut given = BTreeSet::new();
            for (start, count) in starts {
                for page in start..(start + count).min((BLOCKS * PAGES) as u64) {
                    given.insert(page);
                    blocks.insert(page as usize / PAGES);
                }
            }
            for number in gone {
                blocks.remove(number);
                given.retain(|page| *page as usize / PAGES != number);
            }
            prop_assert_eq!(runs(&given, &blocks), given.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_block_is_all_its_pages() {
        let blocks = Blocks::try_new(3).unwrap();
        blocks.insert(1);
        let all: BTreeSet<u64> = (PAGES as u64..2 * PAGES as u64).collect();
        let runs = Runs::new(&blocks, |_, pages: &Pages| pages.set_all(true));
        let (mut found, mut from) = (BTreeSet::new(), 0);
        while !runs.next(from).is_empty() {
            found.extend(runs.next(from));
            from = runs.next(from).end;
        }
        assert_eq!(found, all);
        assert!(runs.next(u64::MAX).is_empty());
    }
}
