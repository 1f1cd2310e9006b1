//! Pages that move to frames side by side, so that the chunks that they leave are free.
//!
//! A share has whole [chunks](mayfly_hypervisor::chunks). Where pages are merged, or given back one by one, chunks are left of which a
//! few frames are used. So pages of such chunks are moved, 16 at a time, to a chunk of their own. Each is moved as a page is
//! [merged](super::merging), in the same order: with a frame of its own for the new one, to which its bytes are copied when nobody
//! can write any more. No vCPU finds the page missing. It may be read on, and the first write takes a fault.
//!
//! Only pages of a VM that is above its guarantee are moved: what another one frees is lent to nobody. So the chunk that it gets
//! before it gives back others takes no VM above its guarantee.

use core::sync::atomic::{AtomicU64, Ordering};

use mayfly_hypervisor::chunks::{CHUNK, CHUNK_ORDER};
use mayfly_vm::memslot::Hva;
use mayfly_vm::platform::address::{PAGE_SHIFT, PAGE_SIZE, Pfn};

use super::super::arch::copy;
use super::going_back::{BEFORE_SHIFT, NUMBER};
use super::merging::{CLOSED, SHARED};
use super::{FRAME, GuestMemory, PAGES, Shares};
use crate::bare::processor::frames::{allocate_as_is, free_all, given_around, part};
use crate::bare::threads;

/// A chunk with more frames than this in use is left as it is.
const FULL: u32 = 13;
/// A memory whose chunks have so many more frames than it has, and a sixteenth, is left as it is.
const LEAST: u64 = 4 * CHUNK;

/// Pages that are to be moved together.
#[derive(Default)]
pub(crate) struct Packing {
    /// The page that is looked at next.
    next: u64,
    pages: [u64; CHUNK as usize],
    count: usize,
}

impl GuestMemory {
    /// Goes on to move pages from chunks of which little is used, if there are many. Looks at 2 MiB, and moves 16 pages at most.
    pub(crate) fn pack(&self, packing: &mut Packing) {
        let Some(share) = self.world.share().filter(|share| share.above() > 0) else { return };
        if share.used() * CHUNK < self.frames() * 17 / 16 + LEAST {
            return;
        }
        let end = packing.next + PAGES;
        while packing.next < end && packing.count < packing.pages.len() {
            if self.is_sparse(packing.next) {
                packing.pages[packing.count] = packing.next;
                packing.count += 1;
            }
            packing.next += 1;
            if packing.next.is_multiple_of(CHUNK) {
                threads::interrupts::look();
            }
        }
        if packing.next << PAGE_SHIFT >= self.bytes() {
            packing.next = 0;
        }
        if packing.count == packing.pages.len() {
            packing.count = 0;
            self.move_all(&packing.pages);
        }
    }

    /// Whether a page has a frame of its own in a chunk of which little is used.
    fn is_sparse(&self, page: u64) -> bool {
        let own = self.frame_at(page).filter(|(_, shared)| !shared);
        own.is_some_and(|(frame, _)| given_around(frame).is_some_and(|given| given <= FULL))
    }

    /// Moves pages to a chunk of their own, if there is one.
    fn move_all(&self, pages: &[u64; CHUNK as usize]) {
        let order = CHUNK_ORDER as u32;
        let Some(first) = allocate_as_is(self.world.share_id(), order) else { return };
        part(first, order);
        for (frame, &page) in (first.get()..).zip(pages) {
            if !self.move_page(page, Pfn::new(frame)) {
                // SAFETY: it is a single frame, and nobody has had it.
                unsafe { free_all(&[frame]) };
            }
            threads::interrupts::look();
        }
    }

    /// Moves a page to a frame of its share that is the caller's. Returns whether it has that now.
    fn move_page(&self, page: u64, to: Pfn) -> bool {
        let hears = self.hears.lock().clone();
        let Some(vm) = hears else { return false };
        let giving = self.giving.lock(&*self.world);
        let Some(own) = self.entry_of(page) else { return false };
        let said = own.load(Ordering::Relaxed);
        let old = Pfn::new(said & FRAME);
        if said & FRAME == 0 || said & SHARED != 0 {
            return false;
        }
        let mut moving = Moving { memory: self, own, old, to };
        let hva = Hva::new(page << PAGE_SHIFT);
        // SAFETY: the frame has the same bytes, nobody writes to either, and it is behind the page from then on.
        let was_mapped = unsafe { vm.share(hva, (old, to), &mut moving) };
        self.settle_met(was_mapped);
        self.frames.fetch_add(1, Ordering::Relaxed);
        // SAFETY: it was given as a single frame, the page has another one, and no TLB has a translation to it.
        unsafe { self.free_left(giving, old) };
        true
    }
}

/// A page that moves.
struct Moving<'a> {
    memory: &'a GuestMemory,
    own: &'a AtomicU64,
    old: Pfn,
    to: Pfn,
}

impl Shares for Moving<'_> {
    fn close(&mut self) {
        self.memory.close(self.own);
    }

    fn compare(&mut self) -> bool {
        threads::interrupts::look();
        // SAFETY: the one is this memory's, and nobody writes to it; the other one is the caller's.
        unsafe {
            copy::bytes(self.old.get() * PAGE_SIZE, self.to.get() * PAGE_SIZE, PAGE_SIZE as usize);
        }
        true
    }

    fn replace(&mut self) {
        // Its place in the chain stays.
        let before = self.own.load(Ordering::Relaxed) & NUMBER << BEFORE_SHIFT;
        self.own.store(self.to.get() | before | SHARED | CLOSED, Ordering::Release);
    }

    fn end(&mut self) {
        self.memory.open(self.own);
    }
}
