//! Memory goes back to the image that it began as.
//!
//! *Which pages.* The pages that have a frame of their own are chained: a word has the last page that its table was given,
//! and the entry of a page has the one before. `given` says which words there are. So memory goes back in a time that
//! grows with the pages that it was given since it began; of memory that was not touched, one bit for each 2 MiB is
//! looked at. The chain needs no memory of its own, so nothing fails here.
//!
//! *In which order.* All threads that used the memory have ended, or wait: no vCPU is in the guest, and no caller holds an
//! address or a number of a page. Then
//!
//! 1. the VM announces that pages go, empties the entries of exactly these pages, and has every TLB forget all that it
//!    remembers of the VM. What was written past the caches is flushed before that;
//! 2. the frames are freed, and the pages are the image's from then on;
//! 3. the announcement ends.
//!
//! Each step is complete before the next one begins. A frame is freed after no TLB has it (1 before 2), so its next owner
//! is alone. Nothing finds the page by its old frame after the end of the announcement (2 before 3): a fault that had
//! resolved the page before is refused, and resolves the image's page.
//!
//! *Why an entry becomes empty, and does not name the image's page again.* What a fork has written, it is likely to write
//! again. From an empty entry that takes one fault, and no invalidation. An entry that names the image's page takes two
//! invalidations until the guest may write. And the caches are maintained where an empty entry is filled, so that a frame
//! that held code of the fork is fetched anew.

use core::sync::atomic::{AtomicU64, Ordering};

use mayfly_hypervisor::given::{Pages, Runs};
use mayfly_vm::platform::address::{PAGE_SHIFT, PAGE_SIZE, Pfn};

use super::{
    BLOCK, BLOCK_BYTES, BLOCK_ORDER, BLOCK_SHIFT, FRAME, FRAMES_AT_ONCE, GuestMemory, KIND, PAGES,
    TABLE, entry,
};
use crate::bare::processor::frames::{free, free_all};
use crate::bare::threads;

/// Where a word has the number of the page that its table was given last, and one: 0 is none.
pub(super) const LAST_SHIFT: u32 = 2;
/// Where an entry has the number of the page that the table was given before, in the same way.
pub(super) const BEFORE_SHIFT: u32 = 48;
/// The bits of such a number.
pub(super) const NUMBER: u64 = (1 << 10) - 1;

impl GuestMemory {
    /// Gives the page at `address`, which has none, or shares one, its frame. `table` is its word. Under the lock.
    pub(super) fn put(&self, address: u64, table: u64, frame: Pfn) {
        let word = &self.words[(address >> BLOCK_SHIFT) as usize];
        let page = (address >> PAGE_SHIFT) % PAGES;
        let value = word.load(Ordering::Relaxed);
        let before = value >> LAST_SHIFT & NUMBER;
        self.part_with(entry(table, page), frame.get() | before << BEFORE_SHIFT);
        // Release: readers of the word find its table by it.
        word.store(value & !(NUMBER << LAST_SHIFT) | (page + 1) << LAST_SHIFT, Ordering::Release);
        if before == 0 {
            // The first page of the word, whose bit stays as long as pages are chained to it.
            self.given.insert((address >> BLOCK_SHIFT) as usize);
        }
    }

    /// Has `pages` be those of word `number` that have a frame.
    fn find_pages(&self, number: usize, pages: &Pages) {
        // The caller has just emptied as many entries as it may between two looks.
        threads::interrupts::look();
        let value = self.words[number].load(Ordering::Relaxed);
        pages.set_all(value & KIND == BLOCK);
        let mut last = if value & KIND == TABLE { value >> LAST_SHIFT & NUMBER } else { 0 };
        while let Some(page) = last.checked_sub(1) {
            pages.insert(page as usize);
            last = entry(value, page).load(Ordering::Relaxed) >> BEFORE_SHIFT;
        }
        if self.merged() != 0 {
            threads::interrupts::look();
            self.merged_in(value).for_each(|page| pages.insert(page as usize));
            threads::interrupts::look();
        }
    }

    /// Has the memory be its image again: what was written is gone, and its frames are free. Tables stay, for what is
    /// written next. Returns how many frames it has freed.
    ///
    /// # Safety
    ///
    /// No vCPU of its VM is in the guest, and no other thread uses the memory.
    pub(crate) unsafe fn go_back(&self) -> u64 {
        let before = self.frames();
        let _giving = self.giving.lock(&*self.world);
        let mut gone = || {
            let (mut from, mut freed) = (0, Freed::new(&self.frames, || ()));
            while let Some(number) = self.given.next(from) {
                // SAFETY: as the caller promises; and no TLB has a translation to them.
                unsafe { self.empty(number, &mut freed) };
                self.given.remove(number);
                from = number + 1;
            }
        };
        let hears = self.hears.lock().clone();
        if let Some(vm) = hears {
            let runs =
                Runs::new(&self.given, |number, pages: &Pages| self.find_pages(number, pages));
            let bytes = self.words.len() as u64 * BLOCK_BYTES;
            vm.take_back(0..bytes / PAGE_SIZE, &|from| runs.next(from), &mut gone);
        } else {
            gone();
        }
        before - self.frames()
    }

    /// Frees the block, or the pages, of word `number`, which are absent then; pages with others, and at the end of `freed`
    /// at the latest. Its table stays.
    ///
    /// # Safety
    ///
    /// Nothing uses them, and no TLB has a translation to them.
    pub(super) unsafe fn empty(&self, number: usize, freed: &mut Freed<'_, impl Fn()>) {
        let word = &self.words[number];
        let value = word.load(Ordering::Relaxed);
        match value & KIND {
            BLOCK => {
                word.store(0, Ordering::Relaxed);
                self.frames.fetch_sub(PAGES, Ordering::Relaxed);
                (freed.before)();
                // SAFETY: it was given for that order; and as the caller promises.
                unsafe { free(Pfn::new(value >> PAGE_SHIFT), BLOCK_ORDER) };
                threads::preemption_point();
            }
            TABLE => {
                self.part_with_all(value, |_| true);
                // Release: readers of the word find its table by it.
                word.store(value & !(NUMBER << LAST_SHIFT), Ordering::Release);
                let mut last = value >> LAST_SHIFT & NUMBER;
                while let Some(page) = last.checked_sub(1) {
                    let given = entry(value, page);
                    let said = given.load(Ordering::Relaxed);
                    given.store(0, Ordering::Relaxed);
                    // SAFETY: it was given as a single frame; and as the caller promises.
                    unsafe { freed.add(said & FRAME) };
                    last = said >> BEFORE_SHIFT;
                }
            }
            _ => {}
        }
    }
}

/// Single frames of a memory that nothing uses any more. They are freed together, when there are enough, or at the end.
pub(super) struct Freed<'a, F: Fn()> {
    frames: [u64; FRAMES_AT_ONCE],
    count: usize,
    /// How many the memory has.
    left: &'a AtomicU64,
    /// What is done before frames are freed that the memory names no more.
    before: F,
}

impl<'a, F: Fn()> Freed<'a, F> {
    pub(super) fn new(left: &'a AtomicU64, before: F) -> Self {
        Self { frames: [0; FRAMES_AT_ONCE], count: 0, left, before }
    }

    /// Adds a frame.
    ///
    /// # Safety
    ///
    /// It was given for order 0, nothing uses it, and no TLB has a translation to it.
    pub(super) unsafe fn add(&mut self, frame: u64) {
        self.frames[self.count] = frame;
        self.count += 1;
        if self.count == FRAMES_AT_ONCE {
            self.free();
        }
    }

    fn free(&mut self) {
        let count = core::mem::take(&mut self.count);
        (self.before)();
        // SAFETY: as was promised of each.
        unsafe { free_all(&self.frames[..count]) };
        self.left.fetch_sub(count as u64, Ordering::Relaxed);
        threads::preemption_point();
    }
}

impl<F: Fn()> Drop for Freed<'_, F> {
    fn drop(&mut self) {
        if self.count != 0 {
            self.free();
        }
    }
}
