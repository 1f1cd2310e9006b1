//! Pages that share a frame with pages of other memories, because they hold the same.
//!
//! Such a page has the frame of a [`shelf`], to be read, until it is written. Then it gets a frame of its own with the same bytes, as a
//! page of an [image](super::image) does. Its entry in the table says [`SHARED`], and is not in the chain of the pages that
//! have a frame of their own. So whoever is to write to it finds no frame, and whoever reads finds the one that it shares.
//!
//! *A page comes to share a frame* ([`GuestMemory::share`]) under the lock, in the order of [`mayfly_merge::share`]:
//!
//! 1. the VM announces it, and no CPU has the right to write to it any more. What was written past the caches is flushed;
//! 2. its entry says `SHARED`, still of its own frame. The merger waits for the moments in which processors use frames without the
//!    lock ([`in_use`]). So no device and no thread of the hypervisor writes to it: those that find no frame wait for the lock;
//! 3. the frames are compared;
//! 4. the entry names the common frame, and the VM has that in place of the old one, to be read: no vCPU finds it missing;
//! 5. the announcement ends, and the old frame is freed after the moments in which somebody may be reading it.
//!
//! *Only pages that have a frame each* come to share one: never a part of a block. A VM that may be merged gets no blocks.
//!
//! *In an image.* Where memory that has such pages becomes an image, they are the image's, and go with it.

use core::sync::atomic::{AtomicU64, Ordering};

use mayfly_merge::{Merged, Sums};
use mayfly_vm::memslot::Hva;
use mayfly_vm::platform::address::{PAGE_SHIFT, PAGE_SIZE, Pfn};
use mayfly_vm::platform::lock::LockGuard;

use super::super::arch::copy;
use super::going_back::{BEFORE_SHIFT, Freed, LAST_SHIFT, NUMBER};
use super::shelf;
use super::{FRAME, GuestMemory, KIND, PAGES, Shares, TABLE, entry};
use crate::bare::processor::in_use;
use crate::bare::threads;

/// In the entry of a page: its frame is others', too, or is about to be. It is only read.
pub(super) const SHARED: u64 = 1 << 58;
/// The page is just being merged.
pub(super) const CLOSED: u64 = 1 << 59;
/// Its VM had the page mapped when it was merged.
const MAPPED: u64 = 1 << 60;

/// Pages that are gone through between two looks for interrupts.
const FEW: u32 = 64;

const WORDS: usize = PAGE_SIZE as usize / size_of::<u64>();

/// Faults of a guest that found no entry to read by where merging should have left one.
#[derive(Default)]
pub(super) struct Met {
    all: AtomicU64,
    /// Those while the page is being merged that is.
    meanwhile: AtomicU64,
}

/// What a frame holds, word by word. The caller has it, or uses it as of [`in_use::begin`].
pub(crate) fn words(frame: Pfn) -> impl Iterator<Item = u64> {
    let first = core::ptr::with_exposed_provenance::<AtomicU64>((frame.get() * PAGE_SIZE) as usize);
    // SAFETY: frames are mapped where their number says.
    (0..WORDS).map(move |word| unsafe { &*first.add(word) }.load(Ordering::Relaxed))
}

fn is_equal(one: Pfn, other: Pfn) -> bool {
    words(one).eq(words(other))
}

impl GuestMemory {
    /// How many pages share a frame.
    pub(crate) fn merged(&self) -> u64 {
        self.merged.load(Ordering::Relaxed)
    }

    /// How many faults found no entry to read by where merging should have left one.
    pub(crate) fn met(&self) -> u64 {
        self.met.all.load(Ordering::Relaxed)
    }

    /// The frame of a page that has one which is no block, whether it shares it, and the sum of what it holds.
    pub(crate) fn look_at(&self, page: u64, sums: &Sums) -> Option<(Pfn, bool, u64)> {
        let _using = in_use::begin();
        let (frame, shared) = self.frame_at(page)?;
        Some((frame, shared, sums.of(words(frame))))
    }

    /// Whether a page shares a frame.
    pub(crate) fn is_shared(&self, page: u64) -> bool {
        self.frame_at(page).is_some_and(|(_, shared)| shared)
    }

    /// The frame of such a page.
    pub(crate) fn frame_of(&self, page: u64) -> Option<Pfn> {
        self.frame_at(page).map(|(frame, _)| frame)
    }

    /// Whether such a page holds what `frame` does, to which nobody writes.
    pub(crate) fn holds(&self, page: u64, frame: Pfn) -> bool {
        let _using = in_use::begin();
        self.frame_at(page).is_some_and(|(own, _)| is_equal(own, frame))
    }

    /// Whether such a page holds what one of another memory does.
    pub(crate) fn is_equal(&self, page: u64, (other, its): (&Self, u64)) -> bool {
        let _using = in_use::begin();
        let frames = self.frame_at(page).zip(other.frame_at(its));
        frames.is_some_and(|((one, _), (other, _))| is_equal(one, other))
    }

    /// Copies a page to a frame that is the caller's alone, if it is in `frame`.
    pub(crate) fn copy_to(&self, page: u64, frame: Pfn, to: Pfn) -> bool {
        let _using = in_use::begin();
        let is_there = self.frame_at(page).is_some_and(|(own, _)| own == frame);
        if is_there {
            // SAFETY: the frame is this memory's meanwhile, and the other one the caller's.
            unsafe {
                copy::bytes(frame.get() * PAGE_SIZE, to.get() * PAGE_SIZE, PAGE_SIZE as usize);
            }
        }
        is_there
    }

    /// Has a page share `with`, a frame of a shelf of which the caller has a reference, if it holds the same.
    pub(crate) fn share(&self, page: u64, with: Pfn) -> Merged {
        let hears = self.hears.lock().clone();
        let Some(vm) = hears else { return Merged::No };
        let giving = self.giving.lock(&*self.world);
        let Some(own) = self.entry_of(page) else { return Merged::No };
        let said = own.load(Ordering::Relaxed);
        let old = Pfn::new(said & FRAME);
        match said & (FRAME | SHARED) {
            0 => return Merged::No,
            SHARED.. => return if old == with { Merged::Before } else { Merged::No },
            _ => {}
        }
        let mut shares = Sharing { memory: self, page, own, old, with, is_equal: false };
        let hva = Hva::new(page << PAGE_SHIFT);
        // SAFETY: the frame has the same bytes then, nobody writes to it, and it is behind the page from then on.
        let was_mapped = unsafe { vm.share(hva, (old, with), &mut shares) };
        threads::interrupts::look();
        match was_mapped {
            None => Merged::No,
            Some(was_mapped) => {
                self.settle_met(Some(was_mapped));
                if was_mapped {
                    own.fetch_or(MAPPED, Ordering::Relaxed);
                }
                own.fetch_and(!CLOSED, Ordering::Relaxed);
                // SAFETY: it was given as a single frame, the page has another one, and no TLB has a translation to it.
                unsafe { self.free_left(giving, old) };
                Merged::Now
            }
        }
    }

    /// Frees a frame that a page has no more, when nobody reads it. Not under the lock: others of the VM may wait for it, and the
    /// processor may be given up here.
    ///
    /// # Safety
    ///
    /// It was given for order 0, no page has it, and no TLB has a translation to it.
    pub(super) unsafe fn free_left(&self, giving: LockGuard<'_, ()>, left: Pfn) {
        drop(giving);
        let mut freed = Freed::new(&self.frames, in_use::wait_for_others);
        // SAFETY: the caller's promise; and whoever finds the page from now on finds its other frame.
        unsafe { freed.add(left.get()) };
    }

    /// A change of a page is over. What has been met of it meanwhile is to blame on that if its VM had it mapped.
    pub(super) fn settle_met(&self, was_mapped: Option<bool>) {
        if was_mapped == Some(true) {
            let met = self.met.meanwhile.load(Ordering::Relaxed);
            self.met.all.fetch_add(met, Ordering::Relaxed);
        }
    }

    /// Has no thread of the hypervisor write to a page that has a frame of its own.
    pub(super) fn close(&self, own: &AtomicU64) {
        threads::interrupts::look();
        self.met.meanwhile.store(0, Ordering::Relaxed);
        self.merged.fetch_add(1, Ordering::Relaxed);
        own.fetch_or(SHARED | CLOSED, Ordering::Release);
        in_use::wait_for_others();
    }

    /// The page is its own again.
    pub(super) fn open(&self, own: &AtomicU64) {
        own.fetch_and(!(SHARED | CLOSED), Ordering::Release);
        self.merged.fetch_sub(1, Ordering::Relaxed);
    }

    /// The entry of a page in its table, if it has one.
    pub(super) fn entry_of(&self, page: u64) -> Option<&AtomicU64> {
        let value = self.words.get((page / PAGES) as usize)?.load(Ordering::Acquire);
        (value & KIND == TABLE).then(|| entry(value, page % PAGES))
    }

    pub(super) fn frame_at(&self, page: u64) -> Option<(Pfn, bool)> {
        let said = self.entry_of(page)?.load(Ordering::Acquire);
        (said & FRAME != 0).then_some((Pfn::new(said & FRAME), said & SHARED != 0))
    }

    /// A guest is about to read a page of a word by a fault.
    pub(super) fn note_read(&self, word: &AtomicU64, page: u64) {
        let value = word.load(Ordering::Acquire);
        let said =
            if value & KIND == TABLE { entry(value, page).load(Ordering::Relaxed) } else { 0 };
        if said & CLOSED != 0 {
            self.met.meanwhile.fetch_add(1, Ordering::Relaxed);
        } else if said & MAPPED != 0 {
            self.met.all.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The pages that share a frame, of the table that a word of that value names. Under the lock.
    pub(super) fn merged_in(&self, value: u64) -> impl Iterator<Item = u64> + use<> {
        let pages = if self.merged() != 0 && value & KIND == TABLE { PAGES } else { 0 };
        (0..pages).filter(move |&page| entry(value, page).load(Ordering::Relaxed) & SHARED != 0)
    }

    /// Has the entry of a page say something else, and gives up the frame that it shares, if it does. No CPU of the VM uses
    /// that any more. Under the lock.
    pub(super) fn part_with(&self, own: &AtomicU64, says: u64) {
        let said = own.load(Ordering::Relaxed);
        own.store(says, Ordering::Release);
        if said & SHARED != 0 {
            self.merged.fetch_sub(1, Ordering::Relaxed);
            shelf::put(Pfn::new(said & FRAME));
        }
    }

    /// Gives up the frames that pages share, of those of the table that a word of that value names that are wanted. Under the
    /// lock.
    pub(super) fn part_with_all(&self, value: u64, is_wanted: impl Fn(u64) -> bool) {
        for page in self.merged_in(value).filter(|&page| is_wanted(page)) {
            self.part_with(entry(value, page), 0);
            threads::interrupts::look();
        }
        threads::interrupts::look();
    }

    /// Takes a page out of the chain of those that have a frame of their own. Its entry says something else then.
    fn take_out(&self, page: u64, says: u64) {
        let (word, page) = (&self.words[(page / PAGES) as usize], page % PAGES);
        let value = word.load(Ordering::Relaxed);
        let chained = |at: u64| entry(value, at).load(Ordering::Relaxed) >> BEFORE_SHIFT & NUMBER;
        let (mut after, mut next) = (None, value >> LAST_SHIFT & NUMBER);
        let mut steps = 0_u32;
        while let Some(at) = next.checked_sub(1).filter(|&at| at != page) {
            (after, next) = (Some(at), chained(at));
            steps += 1;
            if steps.is_multiple_of(FEW) {
                threads::interrupts::look();
            }
        }
        let before = chained(page);
        // Releases, as where these are written at first: readers find the table, and what is in the frame, by them.
        match after {
            None => {
                let value = value & !(NUMBER << LAST_SHIFT) | before << LAST_SHIFT;
                word.store(value, Ordering::Release);
            }
            Some(after) => {
                let said = entry(value, after).load(Ordering::Relaxed);
                let said = said & !(NUMBER << BEFORE_SHIFT) | before << BEFORE_SHIFT;
                entry(value, after).store(said, Ordering::Release);
            }
        }
        entry(value, page).store(says, Ordering::Release);
    }
}

/// A page that comes to share a frame.
struct Sharing<'a> {
    memory: &'a GuestMemory,
    page: u64,
    own: &'a AtomicU64,
    old: Pfn,
    with: Pfn,
    is_equal: bool,
}

impl Shares for Sharing<'_> {
    fn close(&mut self) {
        self.memory.close(self.own);
    }

    fn compare(&mut self) -> bool {
        threads::interrupts::look();
        self.is_equal = is_equal(self.old, self.with);
        threads::interrupts::look();
        self.is_equal
    }

    fn replace(&mut self) {
        shelf::get(self.with);
        self.memory.take_out(self.page, self.with.get() | SHARED | CLOSED);
        threads::interrupts::look();
    }

    fn end(&mut self) {
        if !self.is_equal {
            self.memory.open(self.own);
        }
    }
}
