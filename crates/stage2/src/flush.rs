//! What an operation still owes the TLBs.
//!
//! An operation changes many entries, and then invalidates them together. In between, an entry shows nothing of what
//! TLBs still remember; another operation that comes to it then would find nothing to do, and return before the TLBs
//! have forgotten. So operations count themselves in their root before they change anything, and out when they have
//! invalidated ([`Changing`]); and one that finds another counted when it has visited its entries invalidates all that
//! it has visited, whether it changed something or not. (Linux does the same where threads unmap side by side:
//! `mm_tlb_flush_nested`, `include/linux/mm_types.h`.)
//!
//! - **\[counted\]**: who finds an entry changed has acquired it, and so finds the count raised, or lowered again; the
//!   latter is a release that comes after the invalidation. (`litmus/S2+counted`)

use core::ops::Range;

use mayfly_platform::Op;
use mayfly_platform::address::{Gfn, Pfn};
use mayfly_platform::sync::Ordering;
use mayfly_platform::tlb::Scope;

use crate::graveyard::Dead;
use crate::level::Level;
use crate::range::At;
use crate::root::Root;
use crate::{Entry, Format};

/// More entries than this are invalidated by VMID: an invalidation by address for each would take longer, and what else
/// the VMID has in the TLBs is refilled in passing. (Linux on arm64 draws the line at the entries of one table:
/// `MAX_DVM_OPS`, `arch/arm64/include/asm/tlbflush.h`.)
pub(crate) const MAX_BY_RANGE: u64 = 512;

/// The invalidations of one operation, gathered: issued and completed once, by [`Flush::finish`], before anything that
/// they protect is reused (`litmus/S2+zap+reuse`).
pub(crate) struct Flush {
    /// Contains everything to be invalidated.
    gfns: Range<Gfn>,
    /// The smallest entries among it.
    level: Level,
    /// Tables taken out of the tree, to be buried when no TLB and no walk cache remembers them.
    dead: Dead,
}

impl Flush {
    pub(crate) fn new() -> Self {
        Self { gfns: Gfn::new(u64::MAX)..Gfn::new(0), level: Level::GIB512, dead: Dead::NONE }
    }

    /// Owes the invalidation of an entry of `level` at `gfn`.
    pub(crate) fn add(&mut self, gfn: Gfn, level: Level) {
        let first = level.first(gfn);
        let last = Gfn::new(first.get() + level.pages());
        self.gfns = self.gfns.start.min(first)..self.gfns.end.max(last);
        self.level = self.level.min(level);
    }

    /// Owes the invalidation of whatever there was in `gfns`.
    fn add_range(&mut self, gfns: Range<Gfn>) {
        if gfns.start < gfns.end {
            self.gfns = self.gfns.start.min(gfns.start)..self.gfns.end.max(gfns.end);
            self.level = Level::PAGE;
        }
    }

    /// Owes the table in `pfn`, whose first entry is removed, its burial.
    pub(crate) fn add_dead<F: Format>(&mut self, pfn: Pfn, root: &Root<F>) {
        self.dead.push(pfn, &root.space().tables);
        root.disowned_table();
    }

    /// Invalidates, and buries. Waits for the TLBs, as the platform does.
    pub(crate) fn finish<F: Format>(self, root: &Root<F>) {
        let space = root.space();
        if self.gfns.start < self.gfns.end {
            let pages = self.gfns.end.get() - self.gfns.start.get();
            let scope = if pages / self.level.pages() <= MAX_BY_RANGE {
                Scope::Range(self.gfns)
            } else {
                Scope::All
            };
            root.invalidate_tlb(scope);
        }
        let freed = self.dead.count() as u64;
        if freed > 0 {
            root.mmu().charge(Op::TablesFreed(freed));
        }
        space.graveyard.bury(&self.dead, &space.tables);
    }
}

/// An operation that changes entries before it invalidates them: from the first change until the TLBs have forgotten.
pub(crate) struct Changing<'a, F: Format> {
    root: &'a Root<F>,
}

impl<'a, F: Format> Changing<'a, F> {
    pub(crate) fn begin(root: &'a Root<F>) -> Self {
        // Relaxed: the release of each change comes after it. [counted]
        root.changing.fetch_add(1, Ordering::Relaxed);
        Self { root }
    }

    /// Invalidates, and buries, after `visited` was visited.
    pub(crate) fn finish(self, mut flush: Flush, visited: Range<Gfn>) {
        // Acquire, pairing with the release in `drop`.
        if self.root.changing.load(Ordering::Acquire) > 1 {
            flush.add_range(visited);
        }
        flush.finish(self.root);
    }
}

impl<F: Format> Drop for Changing<'_, F> {
    fn drop(&mut self) {
        // [counted]
        self.root.changing.fetch_sub(1, Ordering::Release);
    }
}

impl<F: Format> Root<F> {
    /// Accounts for entries that were written.
    pub(crate) fn charge_entries(&self, written: u64) {
        if written > 0 {
            self.mmu().charge(Op::EntriesWritten(written));
        }
    }

    /// Has every TLB forget what was in an entry of `level` at `gfn`.
    pub(crate) fn forget(&self, gfn: Gfn, level: Level) {
        let mut flush = Flush::new();
        flush.add(gfn, level);
        flush.finish(self);
    }

    /// Puts `new` in the place of an entry that somebody may be using, frozen until the TLBs have forgotten it
    /// (`litmus/S2+break+make`). Returns whether the entry was still there.
    pub(crate) fn break_and_make(&self, at: &At<'_, F>, new: Entry<F>) -> bool {
        let frozen = at.cell.replace(at.entry, Entry::FROZEN);
        if frozen {
            self.forget(at.gfn, at.level);
            self.space().parking.thaw(at.cell, new, self.mmu());
        }
        frozen
    }

    /// Has every TLB forget `scope` of this root, if any can remember something of it.
    pub(crate) fn invalidate_tlb(&self, scope: Scope) {
        if let Some(vmid) = self.vmid() {
            let mmu = self.mmu();
            mmu.charge(Op::TlbInvalidation);
            mmu.complete(mmu.issue(vmid, scope));
        }
    }

    /// Takes whatever entry `index` of a table holds out of reach, for good: nothing will be put there again.
    pub(crate) fn remove(&self, pfn: Pfn, index: usize) -> Entry<F> {
        let space = self.space();
        let cell = space.tables.cell::<F>(pfn, index);
        loop {
            let entry = cell.load();
            if entry == Entry::FROZEN || entry == Entry::AWAITED {
                space.parking.wait(cell, &*space.tables.mmu);
            } else if cell.replace(entry, Entry::REMOVED) {
                return entry;
            }
        }
    }
}
