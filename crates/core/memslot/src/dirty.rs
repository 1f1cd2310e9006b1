//! Which pages of a slot were written.

use alloc::vec::Vec;

use mayfly_platform::memory::OutOfMemory;
use mayfly_platform::sync::{AtomicU64, Ordering};

/// One bit a page of a slot; the page's number counts from the slot's first, so a slot that moves keeps its log.
///
/// vCPUs mark while a caller harvests, and no mark is lost: both are read-modify-writes of one word. A word covers 64
/// pages (256 KiB of the guest), and vCPUs that mark pages of the same 2 MiB write the same cache line.
#[derive(Debug)]
pub struct DirtyBitmap {
    words: Vec<AtomicU64>,
    pages: u64,
}

impl DirtyBitmap {
    /// A log of `pages` clean pages.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`].
    pub fn try_new(pages: u64) -> Result<Self, OutOfMemory> {
        let count = usize::try_from(pages.div_ceil(u64::BITS.into())).map_err(|_| OutOfMemory)?;
        let mut words = Vec::new();
        words.try_reserve_exact(count)?;
        words.resize_with(count, || AtomicU64::new(0));
        Ok(Self { words, pages })
    }

    /// The pages that there is a bit for.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// The words that [`DirtyBitmap::harvest`] knows.
    pub fn words(&self) -> usize {
        self.words.len()
    }

    /// What the log takes, in bytes.
    pub(crate) fn held(&self) -> usize {
        size_of::<Self>() + self.words.capacity() * size_of::<AtomicU64>()
    }

    /// Marks page `page` of the slot; no effect past its end.
    ///
    /// What the caller wrote to the page before is seen by the caller that harvests the mark. A caller that marks first
    /// and writes then, as a fault handler does that is about to map the page writable, relies on the harvester to
    /// write-protect the page before it reads it.
    #[inline]
    pub fn mark(&self, page: u64) {
        if page < self.pages {
            let word = &self.words[(page / u64::from(u64::BITS)) as usize];
            // Unconditional, although the bit may well be set: to find it set and leave it would let the caller's
            // writes pass the look (stores are delayed), and be missed by a harvest in between. Release, pairing with
            // the acquire in `harvest`.
            word.fetch_or(1 << (page % u64::from(u64::BITS)), Ordering::Release);
        }
    }

    /// Takes the marks out, from word `first` (page 64 `first`) on, into `into`, whose bit `b` of word `w` then stands
    /// for page 64 (`first` + `w`) + `b`. Words past the end are zero. Returns the number of pages marked.
    ///
    /// A mark made meanwhile is in this harvest or in the next.
    pub fn harvest(&self, first: usize, into: &mut [u64]) -> u64 {
        let mut words = self.words.get(first..).unwrap_or_default().iter();
        let mut marked = 0;
        for taken in into {
            *taken = words.next().map_or(0, take);
            marked += u64::from(taken.count_ones());
        }
        marked
    }

    /// As [`DirtyBitmap::harvest`], but the marks stay.
    pub fn read(&self, first: usize, into: &mut [u64]) -> u64 {
        let mut words = self.words.get(first..).unwrap_or_default().iter();
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
        let mut words = self.words.get(first..).unwrap_or_default().iter();
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
