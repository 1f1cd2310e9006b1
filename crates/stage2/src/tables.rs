//! The frames that tables are made of.

use alloc::sync::Arc;
use core::ptr::NonNull;
use core::time::Duration;

use mayfly_platform::Mmu;
use mayfly_platform::address::Pfn;
use mayfly_platform::frames::WORDS;
use mayfly_platform::memory::OutOfMemory;
use mayfly_platform::sync::{AtomicU32, AtomicU64, AtomicUsize, CacheLine, Ordering};

use crate::cell::Cell;
use crate::{Entry, Format};

/// Where the tables of a VM come from and go to, and how many it has.
pub(crate) struct Tables {
    pub(crate) mmu: Arc<dyn Mmu>,
    linear_map: NonNull<AtomicU64>,
    /// Frames that are tables. Written when a table is made or freed, never by a fault in a table that exists.
    frames: CacheLine<AtomicUsize>,
    /// Changes when `frames` has become zero.
    emptied: AtomicU32,
}

// SAFETY: the linear map is memory of the platform's, reached through atomics alone, from any thread.
unsafe impl Send for Tables {}
// SAFETY: as above.
unsafe impl Sync for Tables {}

impl Tables {
    pub(crate) fn new(mmu: Arc<dyn Mmu>) -> Self {
        let linear_map = mmu.linear_map();
        Self { mmu, linear_map, frames: CacheLine(AtomicUsize::new(0)), emptied: AtomicU32::new(0) }
    }

    /// An empty table, or `1 << order` of them side by side.
    pub(crate) fn allocate(&self, order: u32) -> Result<Pfn, OutOfMemory> {
        let pfn = self.mmu.allocate(order)?;
        self.frames.fetch_add(1 << order, Ordering::Relaxed);
        Ok(pfn)
    }

    /// Gives a table back, which nobody can find any more.
    pub(crate) fn free(&self, pfn: Pfn, order: u32) {
        self.mmu.free(pfn, order);
        if self.frames.fetch_sub(1 << order, Ordering::Release) == 1 << order {
            self.emptied.fetch_add(1, Ordering::Release);
            self.mmu.wake(&self.emptied);
        }
    }

    /// How many frames are tables.
    pub(crate) fn frames(&self) -> usize {
        self.frames.load(Ordering::Acquire)
    }

    /// Waits until no frame is a table, for `time` at most. Returns whether that is so.
    pub(crate) fn wait_empty(&self, time: Duration) -> bool {
        let emptied = self.emptied.load(Ordering::Acquire);
        if self.frames() != 0 {
            self.mmu.wait_until(&self.emptied, emptied, self.mmu.now() + time);
        }
        self.frames() == 0
    }

    /// Entry `index` of the table in frame `pfn`; in a root of several tables, counted from the first.
    ///
    /// `pfn` must come from a table entry that was found inside an SRCU section that lasts, or from a root that is held,
    /// or from [`Tables::allocate`].
    #[inline]
    pub(crate) fn cell<F: Format>(&self, pfn: Pfn, index: usize) -> Cell<'_, F> {
        debug_assert!(index < WORDS << F::ROOT_ORDER);
        Cell::new(self.word(pfn, index))
    }

    /// As [`Tables::cell`], where the format does not matter.
    #[inline]
    pub(crate) fn word(&self, pfn: Pfn, index: usize) -> &AtomicU64 {
        // SAFETY: the platform maps every frame it gives at this place for as long as it is given, and what is in it
        // is words that are reached through atomics alone; the frame is freed only after the grace period that the
        // caller's section holds up.
        unsafe { self.linear_map.add(pfn.get() as usize * WORDS + index).as_ref() }
    }

    /// Fills a table that nobody else can find yet.
    pub(crate) fn fill<F: Format>(&self, pfn: Pfn, mut entry: impl FnMut(usize) -> Entry<F>) {
        for index in 0..WORDS {
            self.cell(pfn, index).fill(entry(index));
        }
    }
}
