//! The frames of which tables consist.
//!
//! `tables.rs` and `cell.rs` import each other: a cell is reached through its table, and reports its changes to the
//! observer that the tables have.

use alloc::sync::Arc;
use core::time::Duration;

use mayfly_platform::Mmu;
use mayfly_platform::address::Pfn;
use mayfly_platform::frames::WORDS;
use mayfly_platform::observe::{Step, tell};
use mayfly_platform::sync::{AtomicU32, AtomicU64, AtomicUsize, CacheLine, Ordering};

use crate::cell::Cell;
use crate::entry::link;
use crate::format::{nameable, out_of_range};
use crate::{Entry, Error, Format};

const _: () = assert!(WORDS.is_multiple_of(4));

/// Where the tables of a VM come from and go to, and how many it has.
pub(crate) struct Tables {
    pub(crate) mmu: Arc<dyn Mmu>,
    linear_map: *const AtomicU64,
    /// Whether the platform has an [observer](mayfly_platform::observe).
    is_observed: bool,
    /// Frames that are tables. Written when a table is made or freed, never by a fault in a table that exists.
    frames: CacheLine<AtomicUsize>,
    /// The most that they may be.
    max_frames: usize,
    /// Changes when `frames` has become zero.
    emptied: AtomicU32,
}

/// The frames, one after the other.
#[derive(Clone, Copy)]
pub(crate) struct LinearMap<'a> {
    start: *const AtomicU64,
    tables: &'a Tables,
}

/// The words of a table.
#[derive(Clone, Copy)]
pub(crate) struct Table<'a> {
    start: *const AtomicU64,
    tables: &'a Tables,
}

impl<'a> LinearMap<'a> {
    /// The table in frame `pfn`, which comes from where [`Tables::cell`] says.
    #[inline]
    pub(crate) fn table(self, pfn: Pfn) -> Table<'a> {
        // The platform maps every frame that it gives at this place, for as long as it is given.
        let start = self.start.wrapping_add(pfn.get() as usize * WORDS);
        Table { start, tables: self.tables }
    }
}

impl<'a> Table<'a> {
    /// Entry `index`; in a root of several tables, counted from the first.
    #[inline]
    pub(crate) fn cell<F: Format>(self, index: usize) -> Cell<'a, F> {
        debug_assert!(index < WORDS << F::ROOT_ORDER);
        Cell::new(self.word(index), self.tables)
    }

    #[inline]
    fn word(self, index: usize) -> &'a AtomicU64 {
        // SAFETY: what is in a table's frame is words that are reached through atomics alone; the frame is freed only
        // after the grace period that the caller's section holds up.
        unsafe { &*self.start.wrapping_add(index) }
    }
}

// SAFETY: the linear map is memory of the platform's, reached through atomics alone, from any thread.
unsafe impl Send for Tables {}
// SAFETY: as above.
unsafe impl Sync for Tables {}

impl Tables {
    /// With at most `max_frames` at a time.
    pub(crate) fn new(mmu: Arc<dyn Mmu>, max_frames: usize) -> Self {
        let (linear_map, is_observed) = (mmu.linear_map(), mmu.observer().is_some());
        let (frames, emptied) = (CacheLine(AtomicUsize::new(0)), AtomicU32::new(0));
        Self { mmu, linear_map, is_observed, frames, max_frames, emptied }
    }

    /// An empty table, or `1 << order` of them side by side, where an entry, or a CPU's base register, can name them.
    pub(crate) fn allocate<F: Format>(&self, order: u32) -> Result<Pfn, Error> {
        self.count(1 << order)?;
        let pfn = self.mmu.allocate(order).inspect_err(|_| self.discount(1 << order))?;
        if !nameable::<F>(pfn, 1 << order) {
            // SAFETY: given a moment ago, and no other code knows of it.
            unsafe { self.mmu.free(pfn, order) };
            self.discount(1 << order);
            return Err(out_of_range::<F>(pfn));
        }
        Ok(pfn)
    }

    /// Counts `count` frames more, before there are any, so that the limit is never passed.
    fn count(&self, count: usize) -> Result<(), Error> {
        let limit = self.max_frames;
        let mut before = self.frames.load(Ordering::Relaxed);
        loop {
            let after = before.checked_add(count).filter(|after| *after <= limit);
            let after = after.ok_or(Error::TableLimit { limit })?;
            match self.frames.compare_exchange_weak(
                before,
                after,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(()),
                Err(other) => before = other,
            }
        }
    }

    fn discount(&self, count: usize) {
        if self.frames.fetch_sub(count, Ordering::Release) == count {
            self.emptied.fetch_add(1, Ordering::Release);
            self.mmu.wake(&self.emptied);
        }
    }

    /// Gives a table back, which no CPU can find any more.
    pub(crate) fn free(&self, pfn: Pfn, order: u32) {
        // SAFETY: it came from `allocate`, with this order; no CPU finds it any more, as the caller guarantees. The
        // caller frees a table but once, and has had TLBs and walk caches forget it before.
        unsafe { self.mmu.free(pfn, order) };
        self.discount(1 << order);
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
    /// `pfn` must come from a table entry that was found inside an SRCU section that lasts, or from a root that is
    /// held, or from [`Tables::allocate`].
    #[inline]
    pub(crate) fn cell<F: Format>(&self, pfn: Pfn, index: usize) -> Cell<'_, F> {
        self.linear_map().table(pfn).cell(index)
    }

    /// As [`Tables::cell`], where the format does not matter.
    #[inline]
    pub(crate) fn word(&self, pfn: Pfn, index: usize) -> &AtomicU64 {
        self.linear_map().table(pfn).word(index)
    }

    /// Where the frames are, to be kept at hand throughout a walk: what is behind a reference is loaded again after
    /// each atomic load.
    #[inline]
    pub(crate) fn linear_map(&self) -> LinearMap<'_> {
        LinearMap { start: self.linear_map, tables: self }
    }

    /// Fills a table that no other CPU can find yet.
    pub(crate) fn fill<F: Format>(&self, pfn: Pfn, mut entry: impl FnMut(usize) -> Entry<F>) {
        let table = self.linear_map().table(pfn);
        let fill = || {
            // By four, which is half the instructions: the compiler does not unroll atomic stores by itself.
            for first in (0..WORDS).step_by(4) {
                for index in first..first + 4 {
                    table.word(index).store(entry(index).bits(), Ordering::Relaxed);
                }
            }
        };
        self.observing(fill, |()| Some(Step::Filled { table: pfn }));
    }

    /// Links the dead table in `pfn` to the next one.
    pub(crate) fn link(&self, pfn: Pfn, next: Pfn) {
        let (word, new) = (self.word(pfn, 0), link(next));
        if self.is_observed() {
            self.observing(
                || word.swap(new, Ordering::Relaxed),
                |old| Some(Step::Entry { table: pfn, index: 0, old: *old, new }),
            );
        } else {
            word.store(new, Ordering::Relaxed);
        }
    }

    /// Whether the platform is told what hardware sees.
    #[inline]
    pub(crate) fn is_observed(&self) -> bool {
        self.is_observed
    }

    /// Makes a step, and tells the platform what `step` says that it was, if it is to be told.
    #[inline]
    pub(crate) fn observing<T>(
        &self,
        act: impl FnOnce() -> T,
        step: impl FnOnce(&T) -> Option<Step>,
    ) -> T {
        if !self.is_observed() {
            return act();
        }
        let Some(observer) = self.mmu.observer() else { return act() };
        tell(observer, || {
            let outcome = act();
            let step = step(&outcome);
            (outcome, step)
        })
    }

    /// The frame that `word` is in, and its number there.
    pub(crate) fn place(&self, word: &AtomicU64) -> (Pfn, usize) {
        let words =
            (core::ptr::from_ref(word).addr() - self.linear_map.addr()) / size_of::<AtomicU64>();
        (Pfn::new((words / WORDS) as u64), words % WORDS)
    }
}
