//! The invalidations that an operation still owes the TLBs.
//!
//! An operation changes many entries, and then invalidates them together. In between, an entry does not show what TLBs
//! still remember. Another operation that visits the entry then would find nothing to do, and would return before the
//! TLBs have forgotten. So operations count themselves in their root before they change anything, and count out when
//! they have invalidated ([`Changing`]). An operation that finds another one counted, after it has visited its entries,
//! invalidates everything that it has visited, whether it changed something or not. (Linux does the same where threads
//! unmap side by side: `mm_tlb_flush_nested`, `include/linux/mm_types.h`.)
//!
//! - **\[counted\]**: an operation that finds an entry changed has acquired the entry. So it finds the count raised, or
//!   lowered again; the lowering is a release that comes after the invalidation. (`litmus/S2+counted`)
//! - **\[met\]**: an operation that invalidates for another one has loaded the change, and perhaps stored nothing. The
//!   platform guarantees that the invalidation comes after the load: its barrier covers loads too (`Tlb`;
//!   `litmus/S2+met+flush`).

use core::mem::ManuallyDrop;
use core::ops::Range;

use mayfly_platform::Op;
use mayfly_platform::address::{Gfn, Pfn};
use mayfly_platform::sync::Ordering;
use mayfly_platform::tlb::{Entries, Scope, Span};

use crate::format::breaks_blocks;
use crate::graveyard::Dead;
use crate::level::Level;
use crate::range::{At, Run};
use crate::root::Root;
use crate::{Entry, Format, State};

/// The invalidations of one operation, gathered: issued and completed once, by [`Flush::finish`], before anything that
/// they protect is reused (`litmus/S2+zap+reuse`).
///
/// An invalidation by address reaches the leaf that the address lies in, and not the ones beside it; so how far apart
/// they may be is how small the leaves are that TLBs may hold: those that were there, and under a table that was taken
/// out those below it, over all that it stood for.
pub(crate) struct Flush {
    /// Contains everything to be invalidated.
    gfns: Range<Gfn>,
    /// The smallest leaves among it.
    smallest: Level,
    /// The largest.
    largest: Level,
    /// Whether there may be tables among it.
    tables: bool,
    /// Tables taken out of the tree, to be buried when no TLB and no walk cache remembers them.
    dead: Dead,
}

impl Flush {
    pub(crate) fn new() -> Self {
        Self {
            gfns: Gfn::new(u64::MAX)..Gfn::new(0),
            smallest: Level::GIB512,
            largest: Level::PAGE,
            tables: false,
            dead: Dead::NONE,
        }
    }

    /// Owes the invalidation of a leaf of `level` at `gfn`.
    pub(crate) fn add(&mut self, gfn: Gfn, level: Level) {
        self.add_run(gfn, level, 1);
    }

    /// Owes the invalidation of `count` leaves of `level` from `gfn` on.
    pub(crate) fn add_run(&mut self, gfn: Gfn, level: Level, count: u32) {
        self.cover(level.first(gfn), level, count);
        self.found(level);
    }

    /// Empties entries of `run`, `most` at most, from the first on: up to one that is no leaf any more, or changes at that
    /// moment. Owes their invalidation. Returns how many.
    #[inline]
    pub(crate) fn empty_run<F: Format>(&mut self, run: &Run<'_>, most: u32) -> u32 {
        let mut count = 0;
        while count < most {
            let cell = run.cell::<F>(count);
            let entry = cell.load();
            if entry.state(run.level) != State::Leaf || !cell.replace(entry, Entry::EMPTY) {
                break;
            }
            count += 1;
        }
        if count > 0 {
            self.add_run(run.gfn, run.level, count);
        }
        count
    }

    /// Owes the invalidation of a table in an entry of `level` at `gfn`, and of what is below it: of which no leaf is
    /// smaller than what [`Flush::found`] is told of until the end.
    pub(crate) fn add_table(&mut self, gfn: Gfn, level: Level) {
        self.cover(level.first(gfn), level, 1);
        self.smallest = self.smallest.min(level);
        self.tables = true;
    }

    /// There is a leaf of `level` in what was added.
    pub(crate) fn found(&mut self, level: Level) {
        self.smallest = self.smallest.min(level);
        self.largest = self.largest.max(level);
    }

    /// Owes the invalidation of whatever there was in `gfns`.
    pub(crate) fn add_range(&mut self, gfns: Range<Gfn>) {
        if gfns.start < gfns.end {
            self.gfns = self.gfns.start.min(gfns.start)..self.gfns.end.max(gfns.end);
            (self.smallest, self.tables) = (Level::PAGE, true);
        }
    }

    fn cover(&mut self, first: Gfn, level: Level, count: u32) {
        let last = Gfn::new(first.get() + u64::from(count) * level.pages());
        self.gfns = self.gfns.start.min(first)..self.gfns.end.max(last);
    }

    /// What is to be invalidated, if anything is.
    fn scope<F: Format>(&self, max_by_address: u64) -> Option<Scope> {
        if self.gfns.start >= self.gfns.end {
            return None;
        }
        let entries = if self.tables {
            Entries::Any
        } else if self.smallest == self.largest && breaks_blocks::<F>() {
            Entries::Leaves
        } else {
            Entries::LeavesOfAnySize
        };
        let span = Span { gfns: self.gfns.clone(), stride: self.smallest.pages(), entries };
        Some(if span.count() <= max_by_address { Scope::Range(span) } else { Scope::All })
    }

    /// Owes the table in `pfn`, whose first entry is removed, its burial.
    pub(crate) fn add_dead<F: Format>(&mut self, pfn: Pfn, root: &Root<F>) {
        self.dead.push(pfn, &root.space().tables);
        root.disowned_table();
    }

    /// How many tables it owes their burial.
    pub(crate) fn dead(&self) -> usize {
        self.dead.count()
    }

    /// Invalidates, and buries. Waits for the TLBs, as the platform does.
    pub(crate) fn finish<F: Format>(mut self, root: &Root<F>) {
        let space = root.space();
        if self.largest == Level::PAGE && !self.tables && self.gfns.start < self.gfns.end {
            root.add_owed_neighbours(&mut self.gfns);
        }
        if let Some(scope) = self.scope::<F>(root.mmu().max_by_address()) {
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
        // Acquire, pairing with the release in `end`. No model can miss it: their readers pass a fence where they
        // leave the section that this is in, also where others' pass none, and that acquires what was loaded before.
        let this = ManuallyDrop::new(self);
        if this.root.changing.load(Ordering::Acquire) > 1 {
            flush.add_range(visited);
        }
        flush.finish(this.root);
        this.end();
    }

    fn end(&self) {
        // [counted]
        self.root.changing.fetch_sub(1, Ordering::Release);
    }
}

impl<F: Format> Drop for Changing<'_, F> {
    /// Not finished: code of the operation's caller has panicked. What was changed by then is not known here any more,
    /// and the next operation, which finds it changed, does not invalidate it.
    fn drop(&mut self) {
        self.root.invalidate_tlb(Scope::All);
        self.end();
    }
}

impl<F: Format> Root<F> {
    /// Accounts for entries that were written.
    pub(crate) fn charge_entries(&self, written: u64) {
        if written > 0 {
            self.mmu().charge(Op::EntriesWritten(written));
        }
    }

    /// Has every TLB forget the leaf that was in an entry of `level` at `gfn`.
    pub(crate) fn forget(&self, gfn: Gfn, level: Level) {
        let mut flush = Flush::new();
        flush.add(gfn, level);
        flush.finish(self);
    }

    /// Has every TLB forget all that there was in `gfns`, tables included.
    pub(crate) fn forget_all(&self, gfns: &Range<Gfn>) {
        let mut flush = Flush::new();
        flush.add_range(gfns.clone());
        flush.finish(self);
    }

    /// Puts `new` in the place of an entry that CPUs may be using, frozen until the TLBs have forgotten it
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
            let (mmu, owed) = (self.mmu(), &self.space().owed);
            mmu.charge(Op::TlbInvalidation);
            if let Some(below) = owed.due() {
                mmu.complete(mmu.issue(vmid, scope.clone()));
                owed.paid(below, vmid, &scope, mmu);
            } else {
                mmu.complete(mmu.issue(vmid, scope));
            }
        }
    }
}
