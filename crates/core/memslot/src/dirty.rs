//! Which pages of a slot were written.
//!
//! The log has a bit for each page: its *mark*. Above that it has a *summary*: a bit for each group of 512 pages (8 words,
//! a cache line), which says that the group may have marks. So a harvest of all marks ([`DirtyBitmap::harvest_marked`])
//! looks at the groups that were written, and at no word of the others.
//!
//! A vCPU marks its page, and then looks whether the group's bit is set; if it is not, the vCPU sets it. A harvest clears
//! the bits of up to 64 groups together, and then takes their marks. Between the two steps, each has a full fence:
//!
//! - **\[summarise\]** `fence(SeqCst)` of the vCPU, between its mark and its look, pairs with that of the harvest,
//!   between its clear and its takes (store buffering). So either the harvest finds the mark, or the vCPU finds the bit
//!   cleared, and sets it again. In both cases a mark that is not taken has its group's bit. A harvest that ends before it
//!   has been through all of these groups sets the bits of the others again.
//!
//! A harvest of given words ([`DirtyBitmap::harvest`], [`DirtyBitmap::clear`]) leaves the summary as it is. A bit too
//! much costs a look at eight words. No bit is too few.

use core::ops::Range;

use alloc::vec::Vec;

use mayfly_platform::memory::OutOfMemory;
use mayfly_platform::sync::{AtomicU64, Ordering, fence};

/// Words of a group.
const GROUP: usize = 8;

/// Bits of a word.
const BITS: usize = u64::BITS as usize;

/// One bit a page of a slot; the page's number counts from the slot's first, so a slot that moves keeps its log.
///
/// vCPUs mark while a caller harvests, and no mark is lost: both are read-modify-writes of one word. A word covers 64
/// pages (256 KiB of the guest), and vCPUs that mark pages of the same 2 MiB write the same cache line. The summary is
/// written by the first that marks a page of 2 MiB after a harvest, and read by the others.
#[derive(Debug)]
pub struct DirtyBitmap {
    /// The marks; the summary; and which of its bits a harvest has ever found.
    all: Vec<AtomicU64>,
    words: usize,
    pages: u64,
}

/// Marks that were taken out of one word of a log: bit `b` stands for page 64 `word` + `b` of the slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirtyWord {
    /// Which word it is.
    pub word: usize,
    /// Its marks; not 0 where it was harvested.
    pub marks: u64,
}

impl DirtyBitmap {
    /// A log of `pages` clean pages.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`].
    pub fn try_new(pages: u64) -> Result<Self, OutOfMemory> {
        let words = usize::try_from(pages.div_ceil(u64::BITS.into())).map_err(|_| OutOfMemory)?;
        let count = words + 2 * words.div_ceil(GROUP * BITS);
        let mut all = Vec::new();
        all.try_reserve_exact(count)?;
        all.resize_with(count, || AtomicU64::new(0));
        Ok(Self { all, words, pages })
    }

    /// The pages that there is a bit for.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// The words that [`DirtyBitmap::harvest`] knows.
    pub fn words(&self) -> usize {
        self.words
    }

    /// What the log takes, in bytes.
    pub(crate) fn held(&self) -> usize {
        size_of::<Self>() + self.all.capacity() * size_of::<AtomicU64>()
    }

    /// The words from `first` on.
    fn from(&self, first: usize) -> &[AtomicU64] {
        self.all[..self.words].get(first..).unwrap_or_default()
    }

    /// The summary, and what of it was ever found; as many words each.
    fn summary(&self) -> (&[AtomicU64], &[AtomicU64]) {
        let both = &self.all[self.words..];
        both.split_at(both.len() / 2)
    }

    /// Marks page `page` of the slot; no effect past its end.
    ///
    /// What the caller wrote to the page before is seen by the caller that harvests the mark. A caller that marks first
    /// and writes then, as a fault handler does that is about to map the page writable, relies on the harvester to
    /// write-protect the page before it reads it.
    #[inline]
    pub fn mark(&self, page: u64) {
        if page >= self.pages {
            return;
        }
        let index = (page / u64::from(u64::BITS)) as usize;
        // Unconditional, although the bit may well be set: to find it set and leave it would let the caller's writes
        // pass the look (stores are delayed), and be missed by a harvest in between. Release, pairing with the acquire
        // in `harvest`.
        self.all[index].fetch_or(1 << (page % u64::from(u64::BITS)), Ordering::Release);
        // [summarise]
        fence(Ordering::SeqCst);
        let group = index / GROUP;
        let (summary, bit) = (&self.all[self.words + group / BITS], 1 << (group % BITS));
        if summary.load(Ordering::Relaxed) & bit == 0 {
            // Relaxed: who finds the bit takes the marks by read-modify-writes of their own.
            summary.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Takes marks out, of the groups that have any, into `into`, in order. `from` says where to begin, 0 at first, and
    /// then where to go on; it is [`DirtyBitmap::words`] or more when all has been gone through. Returns how many words
    /// `into` has got. Looks at no word of a group of 512 pages that has had no mark since it was last gone through.
    ///
    /// A mark made meanwhile is in this harvest or in the next.
    pub fn harvest_marked(&self, from: &mut usize, into: &mut [DirtyWord]) -> usize {
        let (summary, found) = self.summary();
        let mut count = 0;
        let first = *from / GROUP;
        for index in first / BITS..summary.len() {
            let skipped = if index == first / BITS { first % BITS } else { 0 };
            let mut left = summary[index].load(Ordering::Relaxed) & u64::MAX << skipped;
            if left == 0 {
                continue;
            }
            *from = (index * BITS + left.trailing_zeros() as usize) * GROUP;
            if count == into.len() {
                return count;
            }
            if found[index].load(Ordering::Relaxed) & left != left {
                found[index].fetch_or(left, Ordering::Relaxed);
            }
            summary[index].fetch_and(!left, Ordering::Relaxed);
            // [summarise]
            fence(Ordering::SeqCst);
            while left != 0 {
                let first = (index * BITS + left.trailing_zeros() as usize) * GROUP;
                *from = first;
                for (marks, word) in self.from(first).iter().take(GROUP).zip(first..) {
                    let Some(place) = into.get_mut(count) else {
                        // What is left of the groups is to be found again.
                        summary[index].fetch_or(left, Ordering::Relaxed);
                        return count;
                    };
                    let marks = take(marks);
                    if marks != 0 {
                        *place = DirtyWord { word, marks };
                        count += 1;
                    }
                }
                left &= left - 1;
            }
        }
        *from = self.words;
        count
    }

    /// The first pages from `page` on, 512 at most, among which there has been a mark since the log began, whether it was
    /// taken or not; perhaps others. `None` where there are none.
    pub fn written_from(&self, page: u64) -> Option<Range<u64>> {
        const PAGES: u64 = (GROUP * BITS) as u64;
        if page >= self.pages {
            return None;
        }
        let first = (page / PAGES) as usize;
        let (summary, found) = self.summary();
        for index in first / BITS..summary.len() {
            let skipped = if index == first / BITS { first % BITS } else { 0 };
            // In this order: a harvest notes a bit before it clears it.
            let now = summary[index].load(Ordering::Acquire);
            let written = (now | found[index].load(Ordering::Relaxed)) & u64::MAX << skipped;
            if written != 0 {
                let group = (index * BITS) as u64 + u64::from(written.trailing_zeros());
                return Some((group * PAGES).max(page)..((group + 1) * PAGES).min(self.pages));
            }
        }
        None
    }

    /// Takes the marks out, from word `first` (page 64 `first`) on, into `into`, whose bit `b` of word `w` then stands
    /// for page 64 (`first` + `w`) + `b`. Words past the end are zero. Returns the number of pages marked.
    ///
    /// A mark made meanwhile is in this harvest or in the next.
    pub fn harvest(&self, first: usize, into: &mut [u64]) -> u64 {
        let mut words = self.from(first).iter();
        let mut marked = 0;
        for taken in into {
            *taken = words.next().map_or(0, take);
            marked += u64::from(taken.count_ones());
        }
        marked
    }

    /// As [`DirtyBitmap::harvest`], but the marks stay.
    pub fn read(&self, first: usize, into: &mut [u64]) -> u64 {
        let mut words = self.from(first).iter();
        let mut marked = 0;
        for read in into {
            // Acquire, pairing with the release in `mark`.
            *read = words.next().map_or(0, |word| word.load(Ordering::Acquire));
            marked += u64::from(read.count_ones());
        }
        marked
    }

    /// Takes those marks out, from word `first` on, whose bits are set in `which`, which has the form that
    /// [`DirtyBitmap::harvest`] gives; leaves there those that it has taken. Returns how many they were.
    pub fn clear(&self, first: usize, which: &mut [u64]) -> u64 {
        let mut words = self.from(first).iter();
        let mut taken = 0;
        for which in which {
            *which = words.next().map_or(0, |word| take_of(word, *which));
            taken += u64::from(which.count_ones());
        }
        taken
    }
}

/// Those marks of one word that are in `which`.
fn take_of(word: &AtomicU64, which: u64) -> u64 {
    if word.load(Ordering::Relaxed) & which == 0 {
        return 0;
    }
    // Acquire, as in `take`.
    word.fetch_and(!which, Ordering::Acquire) & which
}

/// The marks of one word, which has none left.
fn take(word: &AtomicU64) -> u64 {
    // A clean word is left alone, and its cache line to the CPU that has it.
    if word.load(Ordering::Relaxed) == 0 {
        return 0;
    }
    // Acquire, pairing with the release in `mark`.
    word.swap(0, Ordering::Acquire)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU64 as Count, AtomicUsize};
    use std::vec;

    #[test]
    fn a_mark_is_harvested_once() {
        let bitmap = DirtyBitmap::try_new(130).unwrap();
        for page in [0, 63, 64, 129] {
            bitmap.mark(page);
            bitmap.mark(page);
        }
        let mut words = [0; 3];
        assert_eq!(bitmap.harvest(0, &mut words), 4);
        assert_eq!(words, [1 | 1 << 63, 1, 2]);
        assert_eq!(bitmap.harvest(0, &mut words), 0);
        assert_eq!(words, [0; 3]);
    }

    #[test]
    fn a_harvest_of_some_words_leaves_the_others() {
        let bitmap = DirtyBitmap::try_new(192).unwrap();
        for page in [1, 65, 129] {
            bitmap.mark(page);
        }
        let mut middle = [0; 1];
        assert_eq!(bitmap.harvest(1, &mut middle), 1);
        let mut all = [0; 3];
        assert_eq!(bitmap.harvest(0, &mut all), 2);
        assert_eq!(all, [2, 0, 2]);
    }

    #[test]
    fn what_is_read_stays_and_what_is_cleared_is_what_was_named_and_marked() {
        let bitmap = DirtyBitmap::try_new(192).unwrap();
        for page in [1, 2, 65, 129] {
            bitmap.mark(page);
        }
        let mut words = [!0; 4];
        for _ in 0..2 {
            assert_eq!(bitmap.read(0, &mut words), 4);
            assert_eq!(words, [6, 2, 2, 0]);
        }
        let mut which = [4 | 8, 1, !0, !0];
        assert_eq!(bitmap.clear(0, &mut which), 2);
        assert_eq!(which, [4, 0, 2, 0]);
        let mut which = [2];
        assert_eq!((bitmap.clear(1, &mut which), which), (1, [2]));
        assert_eq!(bitmap.harvest(0, &mut words), 1);
        assert_eq!(words, [2, 0, 0, 0]);
        assert_eq!((bitmap.clear(usize::MAX, &mut [!0]), bitmap.read(3, &mut [0])), (0, 0));
    }

    #[test]
    fn pages_and_words_past_the_end_are_clean() {
        let bitmap = DirtyBitmap::try_new(65).unwrap();
        assert_eq!((bitmap.pages(), bitmap.words()), (65, 2));
        for page in [65, 127, 128, u64::MAX] {
            bitmap.mark(page);
        }
        let mut words = [!0; 4];
        assert_eq!(bitmap.harvest(0, &mut words), 0);
        assert_eq!(words, [0; 4]);
        bitmap.mark(64);
        for first in [2, 3, usize::MAX] {
            let mut words = [!0; 1];
            assert_eq!(bitmap.harvest(first, &mut words), 0);
            assert_eq!(words, [0]);
        }
    }

    #[test]
    fn what_is_marked_is_listed_once_and_in_order_however_short_the_list_is() {
        let pages = [0, 63, 64, 511, 512, 40_000, 99_999];
        let words = [0, 1, 7, 8, 625, 1562];
        for length in 1..9 {
            let bitmap = DirtyBitmap::try_new(100_000).unwrap();
            for page in pages {
                bitmap.mark(page);
            }
            let (mut from, mut listed) = (0, Vec::new());
            while from < bitmap.words() {
                let mut into = vec![DirtyWord::default(); length];
                let count = bitmap.harvest_marked(&mut from, &mut into);
                listed.extend_from_slice(&into[..count]);
            }
            assert_eq!(listed.iter().map(|one| one.word).collect::<Vec<_>>(), words, "{length}");
            assert_eq!(listed[0].marks, 1 | 1 << 63);
            assert_eq!(listed.iter().map(|one| one.marks.count_ones()).sum::<u32>(), 7);
            assert_eq!(bitmap.harvest_marked(&mut 0, &mut [DirtyWord::default(); 9]), 0);
            bitmap.mark(512);
            let mut into = [DirtyWord::default(); 9];
            assert_eq!(bitmap.harvest_marked(&mut 0, &mut into), 1);
            assert_eq!(into[0], DirtyWord { word: 8, marks: 1 });
        }
    }

    #[test]
    fn a_list_without_room_takes_nothing_and_one_past_the_end_ends() {
        let bitmap = DirtyBitmap::try_new(65).unwrap();
        bitmap.mark(64);
        let mut from = 0;
        assert_eq!((bitmap.harvest_marked(&mut from, &mut []), from), (0, 0));
        let mut into = [DirtyWord::default(); 2];
        for beyond in [8, 512, usize::MAX] {
            let mut from = beyond;
            assert_eq!((bitmap.harvest_marked(&mut from, &mut into), from), (0, 2));
        }
        assert_eq!(bitmap.harvest(0, &mut [0; 2]), 1, "it was still there");
        assert_eq!(bitmap.harvest_marked(&mut from, &mut into), 0, "and is not any more");
    }

    #[test]
    fn what_was_ever_written_is_told_of_whoever_took_the_marks() {
        let bitmap = DirtyBitmap::try_new(2000).unwrap();
        let written = |bitmap: &DirtyBitmap| {
            let after = |pages: &Range<u64>| bitmap.written_from(pages.end);
            std::iter::successors(bitmap.written_from(0), after).collect::<Vec<_>>()
        };
        assert_eq!(written(&bitmap), []);
        for page in [3, 700, 1999] {
            bitmap.mark(page);
        }
        assert_eq!(bitmap.harvest(0, &mut [0]), 1);
        let mut into = [DirtyWord::default(); 9];
        assert_eq!(bitmap.harvest_marked(&mut 0, &mut into), 2);
        assert_eq!(written(&bitmap), [0..512, 512..1024, 1536..2000]);
        assert_eq!(bitmap.written_from(1000), Some(1000..1024), "no page before that is named");
        assert_eq!(
            [1024, 1999].map(|page| bitmap.written_from(page)),
            [Some(1536..2000), Some(1999..2000)]
        );
        assert_eq!([2000, u64::MAX].map(|page| bitmap.written_from(page)), [None, None]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri gives up where an allocator refuses")]
    fn a_bitmap_beyond_all_memory_is_refused() {
        assert!(DirtyBitmap::try_new(u64::MAX).is_err());
    }

    #[test]
    fn marks_that_race_with_harvests_are_each_harvested_after_the_write_they_stand_for() {
        const PAGES: usize = if cfg!(miri) { 1 << 8 } else { 1 << 18 };
        let writes = |page: usize| 1 + page as u64 / 2 % 2;
        let bitmap = DirtyBitmap::try_new(PAGES as u64).unwrap();
        let pages: Vec<Count> = (0..PAGES).map(|_| Count::new(0)).collect();
        let mut copy = vec![0; PAGES];
        let mut harvest = |first: usize, words: &mut [u64]| {
            bitmap.harvest(first, words);
            for (word, taken) in words.iter_mut().enumerate() {
                while *taken != 0 {
                    let page = 64 * (first + word) + taken.trailing_zeros() as usize;
                    copy[page] = pages[page].load(Ordering::Relaxed);
                    *taken &= *taken - 1;
                }
            }
        };
        // The word that is being marked, so that it is harvested right then.
        let busy = AtomicUsize::new(0);
        let start = Barrier::new(3);
        std::thread::scope(|scope| {
            // Two vCPUs share words, but no page. They write some pages once, so a lost mark is not made again, and
            // some twice, so they often find a page marked.
            let vcpus = [0, 1].map(|vcpu| {
                let (bitmap, pages, busy, start) = (&bitmap, &pages, &busy, &start);
                scope.spawn(move || {
                    start.wait();
                    for page in (vcpu..PAGES).step_by(2) {
                        busy.store(page / 64, Ordering::Relaxed);
                        for write in 1..=writes(page) {
                            pages[page].store(write, Ordering::Relaxed);
                            bitmap.mark(page as u64);
                        }
                    }
                })
            });
            start.wait();
            while vcpus.iter().any(|vcpu| !vcpu.is_finished()) {
                harvest(busy.load(Ordering::Relaxed), &mut [0]);
            }
        });
        harvest(0, &mut vec![0; PAGES / 64]);
        assert!(copy.iter().enumerate().all(|(page, &seen)| seen == writes(page)));
    }
}
