//! Tables in Intel's format, in the machine's memory, changed under `mmu_lock`.
//!
//! Under the lock for read, several threads change tables, by compare-exchange. A thread that finds an entry frozen (KVM's
//! `REMOVED_SPTE`) leaves it, and its fault is taken again. A table is taken out of a tree only if no other thread walks
//! it: in an invalid root, on which no fault begins any more.

use std::ops::Range;
use std::sync::Arc;

use anyhow::Context;
use mayfly_platform::address::{Gfn, Hpa, PAGE_SHIFT, Pfn};
use mayfly_platform::frames::{Frames, WORDS};
use mayfly_platform::sync::{AtomicU64, Ordering};
use mayfly_stage2::{Entry, Ept, Format, Leaf, Level, Permissions, State};

use crate::slot_delete::watch::Watch;

/// What an entry is that leads nowhere.
pub(super) const EMPTY: Entry<Ept> = Entry::from_bits(0);

pub(super) struct Tables {
    watch: Arc<Watch>,
}

/// The level of the tables that entries of `level` lead to.
pub(super) fn below(level: Level) -> anyhow::Result<Level> {
    level.below().context("a page is no table")
}

impl Tables {
    pub(super) fn new(watch: Arc<Watch>) -> Self {
        Self { watch }
    }

    /// An empty table.
    pub(super) fn allocate(&self) -> anyhow::Result<Pfn> {
        Ok(self.watch.allocate(0)?)
    }

    /// Frees a table that this has allocated.
    pub(super) fn free(&self, table: Pfn) {
        // SAFETY: it was allocated above, and nobody walks it any more.
        unsafe { self.watch.free(table, 0) };
    }

    pub(super) fn word(&self, table: Pfn, index: usize) -> &AtomicU64 {
        self.watch.hardware().arena().word(Hpa::new((table.get() << PAGE_SHIFT) + 8 * index as u64))
    }

    pub(super) fn load(&self, table: Pfn, index: usize) -> Entry<Ept> {
        Entry::from_bits(self.word(table, index).load(Ordering::Acquire))
    }

    /// Where the table of `level` has its entry for `gfn`.
    pub(super) fn index(level: Level, gfn: Gfn) -> usize {
        (gfn.get() / level.pages()) as usize % WORDS
    }

    /// The table of `level` on the way to `gfn`, made with those above it if it is missing.
    fn table(&self, top: Pfn, gfn: Gfn, level: Level) -> anyhow::Result<Option<Pfn>> {
        let (mut table, mut at) = (top, Ept::TOP);
        while at > level {
            let index = Self::index(at, gfn);
            table = match self.load(table, index).state(at) {
                State::Table(below) => below,
                State::Empty => {
                    let new = self.allocate()?;
                    if !self.install(table, index, Entry::table(new)) {
                        self.free(new);
                        continue;
                    }
                    new
                }
                _ => return Ok(None),
            };
            at = below(at)?;
        }
        Ok(Some(table))
    }

    /// Puts `entry` where nothing is. Returns whether nothing was there.
    fn install(&self, table: Pfn, index: usize, entry: Entry<Ept>) -> bool {
        let word = self.word(table, index);
        word.compare_exchange(EMPTY.bits(), entry.bits(), Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Maps a page in its table, to memory that the guest reads, writes and executes, unless something is there.
    fn map_in(&self, table: Pfn, gfn: Gfn, pfn: Pfn) {
        let leaf = Leaf::new(pfn, Permissions::all());
        self.install(table, Self::index(Level::PAGE, gfn), Entry::leaf(Level::PAGE, &leaf));
    }

    /// Maps one page, unless something is there.
    pub(super) fn map(&self, top: Pfn, gfn: Gfn, pfn: Pfn) -> anyhow::Result<()> {
        if let Some(table) = self.table(top, gfn, Level::PAGE)? {
            self.map_in(table, gfn, pfn);
        }
        Ok(())
    }

    /// Maps `gfns`, of one table of pages, to frames from `pfn` on.
    pub(super) fn map_run(&self, top: Pfn, gfns: Range<Gfn>, pfn: Pfn) -> anyhow::Result<()> {
        if let Some(table) = self.table(top, gfns.start, Level::PAGE)? {
            for page in 0..gfns.end.get() - gfns.start.get() {
                self.map_in(table, Gfn::new(gfns.start.get() + page), Pfn::new(pfn.get() + page));
            }
        }
        Ok(())
    }
}
