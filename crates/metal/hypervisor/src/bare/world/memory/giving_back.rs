//! Pages that a running guest gives back, because it does not use them. They get frames again when it touches them, as if it
//! never had.
//!
//! *In which order.* The caller holds `giving`, so no page gets a frame meanwhile. Then
//!
//! 1. the VM announces that pages go, empties their entries, and has every TLB forget them. What was written past the caches
//!    is flushed before that;
//! 2. the memory names their frames no more;
//! 3. the caller waits for the moments in which processors use frames without the lock ([`in_use`]): threads of this VM's
//!    devices, and those that bring it a frame from the network or what a disk has read;
//! 4. the frames are freed;
//! 5. the announcement ends.
//!
//! Each step is complete before the next one begins. So a frame's next owner is alone: no vCPU and no TLB has it (1), no
//! device finds it (2) or has found it (3). A vCPU that had resolved the page before is refused until the announcement ends
//! (5), and resolves it again then.
//!
//! *What a page reads as.* Zeroes, from a new frame; where memory began as an image, what the image has there, and the image
//! is as it was. Never what another has: frames are zeroed or copied to before they are given. A page of the image that the
//! guest has not written to has no frame of its own, and stays. To have it read as zeroes would take a frame for a note that
//! it does, and free none. A guest that [counts](mayfly_devices::virtio::Contents) on zeroes keeps the pages that the image
//! has.
//!
//! *Blocks and tables.* A block of which some pages are given back gets a table, and is never a block again in this run: a
//! table stays, also when it names no page. So a memory never has more chunks of single frames than those of the words that have
//! a table, full, and its blocks are of other words: with all that it can have it stays within its guarantee, however a guest
//! has scattered what it keeps.

use core::ops::Range;
use core::sync::atomic::Ordering;

use mayfly_devices::virtio::Contents;
use mayfly_hypervisor::given::Pages;
use mayfly_vm::platform::address::{PAGE_SHIFT, Pfn};

use super::going_back::{BEFORE_SHIFT, Freed, LAST_SHIFT, NUMBER};
use super::{BLOCK, BLOCK_ORDER, FRAME, GuestMemory, KIND, PAGES, TABLE, entry};
use crate::bare::processor::frames::part;
use crate::bare::processor::in_use;
use crate::bare::threads;

impl GuestMemory {
    /// Frees the frames of `pages`, which are in order and apart from each other, and none of which is beyond the end: their
    /// guest has given them back, and they may read as `contents` says. Returns how many frames it has freed.
    pub(crate) fn give_back(&self, pages: &[Range<u64>], contents: Contents) -> u64 {
        let (Some(first), Some(last)) = (pages.first(), pages.last()) else { return 0 };
        let hears = self.hears.lock().clone();
        let Some(vm) = hears else { return 0 };
        let _giving = self.giving.lock(&*self.world);
        let mut is_any = false;
        self.each_given(pages, |number, those| {
            is_any = true;
            if !is_whole(number, those) {
                self.part(number);
            }
        });
        if !is_any {
            return 0;
        }
        let before = self.frames();
        let next = |from: u64| {
            let next = pages.get(pages.partition_point(|range| range.end <= from));
            next.map_or(u64::MAX..u64::MAX, |range| range.start.max(from)..range.end)
        };
        let mut gone = || {
            let mut freed = Freed::new(&self.frames, in_use::wait_for_others);
            self.each_given(pages, |number, those| {
                // SAFETY: the VM has heard that they go, and no CPU uses what it had mapped of them.
                unsafe { self.take(number, those, contents, &mut freed) };
            });
        };
        vm.take_back(first.start..last.end, &next, &mut gone);
        before - self.frames()
    }

    /// Calls `each` with the number of each word that has a frame and some of `pages`, and with those.
    fn each_given(&self, pages: &[Range<u64>], mut each: impl FnMut(usize, &[Range<u64>])) {
        let mut from = 0;
        while let Some(range) = pages.get(pages.partition_point(|range| range.end <= from)) {
            let number = (range.start.max(from) / PAGES) as usize;
            let Some(number) = self.given.next(number) else { return };
            let word = of_word(number);
            let those = &pages[pages.partition_point(|range| range.end <= word.start)..];
            let those = &those[..those.partition_point(|range| range.start < word.end)];
            if !those.is_empty() {
                each(number, those);
            }
            from = word.end;
            threads::preemption_point();
        }
    }

    /// Has word `number`, if it names a block, name a table with the pages of the block. Not where there is no frame for one.
    fn part(&self, number: usize) {
        let word = &self.words[number];
        let value = word.load(Ordering::Relaxed);
        if value & KIND != BLOCK {
            return;
        }
        let Some(table) = self.world.frames(0) else { return };
        let (first, table) = (value >> PAGE_SHIFT, table.get() << PAGE_SHIFT | TABLE);
        for page in 0..PAGES {
            // The one before it in the chain is the one before it.
            let said = (first + page) | page << BEFORE_SHIFT;
            entry(table, page).store(said, Ordering::Relaxed);
        }
        part(Pfn::new(first), BLOCK_ORDER);
        self.frames.fetch_add(1, Ordering::Relaxed);
        // Release: readers of the word find its table by it.
        word.store(table | PAGES << LAST_SHIFT, Ordering::Release);
    }

    /// Frees those of `pages` that are of word `number`.
    ///
    /// # Safety
    ///
    /// No CPU uses what a VM had mapped of them. Others may be using what they have found of them.
    unsafe fn take(
        &self,
        number: usize,
        pages: &[Range<u64>],
        contents: Contents,
        freed: &mut Freed<'_, impl Fn()>,
    ) {
        let address = |page: u64| (number as u64 * PAGES + page) << PAGE_SHIFT;
        let keeps_images = contents == Contents::Zeroes && self.image_has(address(0));
        if is_whole(number, pages) && !keeps_images {
            // SAFETY: as the caller promises; what others have found is waited for.
            unsafe { self.empty(number, freed) };
            self.given.remove(number);
            return;
        }
        let (wanted, word) = (Pages::default(), of_word(number));
        for range in pages {
            for page in range.start.max(word.start)..range.end.min(word.end) {
                wanted.insert((page - word.start) as usize);
            }
        }
        // The image's page is found where the image's word is there, whatever this memory's own word says.
        let is_wanted = |page: u64| {
            let is_image = || self.page_of_images(address(page)).is_ok_and(|found| found.is_some());
            wanted.contains(page as usize) && !(keeps_images && is_image())
        };
        // SAFETY: as the caller promises.
        unsafe { self.unchain(number, is_wanted, freed) };
    }

    /// Frees those pages of word `number`, if it names a table, that are wanted.
    ///
    /// # Safety
    ///
    /// As [`GuestMemory::take`].
    unsafe fn unchain(
        &self,
        number: usize,
        is_wanted: impl Fn(u64) -> bool,
        freed: &mut Freed<'_, impl Fn()>,
    ) {
        let word = &self.words[number];
        let value = word.load(Ordering::Relaxed);
        if value & KIND != TABLE {
            return;
        }
        self.part_with_all(value, &is_wanted);
        // The page that stays, and that names the next one in the chain.
        let mut after = None;
        let mut last = value >> LAST_SHIFT & NUMBER;
        while let Some(page) = last.checked_sub(1) {
            let said = entry(value, page).load(Ordering::Relaxed);
            last = said >> BEFORE_SHIFT;
            if !is_wanted(page) {
                after = Some(page);
                continue;
            }
            entry(value, page).store(0, Ordering::Relaxed);
            // Releases, as where these are written at first: readers find the table, and what is in the frame, by them.
            match after {
                None => {
                    word.store(
                        value & !(NUMBER << LAST_SHIFT) | last << LAST_SHIFT,
                        Ordering::Release,
                    );
                }
                Some(page) => {
                    let frame = entry(value, page).load(Ordering::Relaxed) & FRAME;
                    entry(value, page).store(frame | last << BEFORE_SHIFT, Ordering::Release);
                }
            }
            // SAFETY: as the caller promises; it was given as a single frame, or is one since its block was parted.
            unsafe { freed.add(said & FRAME) };
        }
        if word.load(Ordering::Relaxed) >> LAST_SHIFT & NUMBER == 0
            && self.merged_in(value).next().is_none()
        {
            self.given.remove(number);
        }
    }
}

/// The pages of word `number`.
const fn of_word(number: usize) -> Range<u64> {
    let first = number as u64 * PAGES;
    first..first + PAGES
}

/// Whether all of word `number` is among `pages`, each of which has some of it.
fn is_whole(number: usize, pages: &[Range<u64>]) -> bool {
    let word = of_word(number);
    pages.first().is_some_and(|range| range.start <= word.start && word.end <= range.end)
}
