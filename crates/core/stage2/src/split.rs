//! Splitting blocks: for one page of a block, or in batches before the guest writes to them. And finding pages that
//! could be blocks.
//!
//! A dirty log works by the page. If a block is split by the write that comes, the vCPU makes the table, and waits for
//! the TLBs where the format requires break-before-make. [`Stage2::split_blocks`] does both before.
//!
//! A *batch* is up to [`BATCH`] blocks that follow each other in one table. Their tables are made and filled first.
//! Then the blocks are frozen, one after the other, by compare-exchange. Then the TLBs forget them all, by one
//! invalidation. Then they are thawed as tables. A batch waits for nothing but TLBs while it has entries frozen: if
//! another CPU has frozen or changed an entry, the entry is left for a later batch. So a range costs one invalidation
//! for each batch of blocks. A vCPU that meets a frozen block waits for one invalidation, as it would have by its own
//! write.
//!
//! The guest sees no difference, so nothing is announced. As in [`Root::split`], a call that takes something away finds
//! an entry frozen, or finds the table, or has been there before.

use core::ops::Range;

use mayfly_platform::address::{Gfn, Pfn};

use crate::cell::Cell;
use crate::flush::Flush;
use crate::graveyard::BOUND;
use crate::level::below_of;
use crate::range::{At, Budget, Slice, Visitor};
use crate::root::{Root, RootRef};
use crate::{Entry, Error, Format, Leaf, Level, Role, Stage2, State};

/// Blocks that are frozen at a time, 64 MiB of them.
const BATCH: usize = 32;

impl<F: Format> Stage2<F> {
    /// Makes the blocks of `gfns`, those that jut out among them, tables of pages in every root, slice by slice; the
    /// guest goes on by them as before. For each 32 blocks of 2 MiB, and each of 1 GiB, TLBs are asked once at most.
    ///
    /// Needs no invalidation under way, and may come together with whatever changes the range.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`]: blocks are left, which can be used as before.
    pub fn split_blocks(&self, gfns: Range<Gfn>, slice: Slice) -> Result<(), Error> {
        let mut outcome = Ok(());
        self.in_slices(gfns, |root, left| {
            let done = root.split_slice(left, slice);
            outcome = done.map(drop).and(outcome);
            done.unwrap_or(true)
        });
        outcome
    }

    /// The first of `gfns` that a page maps in the root of `role`, if there is one, which is not a block's: something
    /// that a block could take the place of. Looks at a slice of them, and leaves in `gfns` what it has not looked at.
    pub fn find_page(&self, role: Role, gfns: &mut Range<Gfn>, slice: Slice) -> Option<Gfn> {
        let Some(root) = self.root_of(role) else {
            gfns.start = gfns.end;
            return None;
        };
        let mut find = Find { pages: true, found: None };
        let _section = self.space().srcu.read_lock();
        let all = root.visit(gfns, &mut Budget::new(slice, root.mmu()), &mut find);
        if all {
            gfns.start = gfns.end;
        }
        find.found.map(|(gfn, _)| gfn)
    }

    /// Frees what was buried when a block came in the place of a table. Not from inside a section, nor an invalidation:
    /// waits for readers, where too many tables await theirs. Returns whether it did: a block may have been refused
    /// then.
    pub fn collect_tables(&self) -> bool {
        let space = self.space();
        let waits = space.graveyard.count() >= BOUND;
        if waits {
            space.graveyard.collect_all(&space.tables, &space.srcu);
        } else {
            space.graveyard.collect(&space.tables, &space.srcu);
        }
        waits
    }

    fn root_of(&self, role: Role) -> Option<RootRef<F>> {
        let section = self.space().srcu.read_lock();
        self.roots(&section).find(|root| root.role() == role)
    }
}

impl<F: Format> Root<F> {
    /// Turns the block `entry` at `gfn` into a table, which is `table`, of the next smaller size: the guest sees no
    /// difference. No effect where `entry` is not there any more.
    pub(crate) fn split(
        &self,
        cell: Cell<'_, F>,
        level: Level,
        gfn: Gfn,
        entry: Entry<F>,
        table: Pfn,
    ) {
        let space = self.space();
        self.fill_with_parts(table, entry, level);
        let new = Entry::table(table);
        if !cell.replace(entry, Entry::FROZEN) {
            self.free_table(table);
            return;
        }
        // No fence: nothing is asked of the host. The frames are those of before, and a zap of them finds the entry
        // frozen, or the table, or has zapped the block.
        if entry.requires_break_before_make(level, new, true) {
            self.forget(gfn, level);
        }
        self.children().note::<F>(level, gfn);
        space.parking.thaw(cell, new, self.mmu());
        self.charge_entries(1);
    }

    /// Fills `table`, which no CPU can find yet, with leaves of the next smaller size for the block `entry` of `level`.
    fn fill_with_parts(&self, table: Pfn, entry: Entry<F>, level: Level) {
        let (block, below) = (entry.to_leaf(level), below_of(level));
        let leaf = |index: u64| {
            let pfn = Pfn::new(block.pfn.get() + index * below.pages());
            Entry::<F>::leaf(below, &Leaf { pfn, ..block }).bits()
        };
        // In every format the frame's number stands in the entry as it is, so one differs from the next by as much as
        // the first from the second: to make each from its leaf takes six times as long.
        let (first, step) = (leaf(0), leaf(1).wrapping_sub(leaf(0)));
        self.space().tables.fill(table, |index| {
            let bits = first.wrapping_add(step.wrapping_mul(index as u64));
            debug_assert_eq!(bits, leaf(index as u64), "{index}");
            Entry::<F>::from_bits(bits)
        });
    }

    /// Splits a block, so that a page of it can be changed by itself. Returns whether there was memory for that; the
    /// entry is to be loaded again then.
    pub(crate) fn split_at(&self, at: &At<'_, F>) -> bool {
        let Ok(table) = self.allocate_table() else { return false };
        self.split(at.cell, at.level, at.gfn, at.entry, table);
        true
    }

    /// Splits a batch of what is left of `range`. Returns whether all is done.
    fn split_slice(&self, range: &mut Range<Gfn>, slice: Slice) -> Result<bool, Error> {
        // What no guest can have has no blocks.
        range.end = range.end.min(Self::LIMIT);
        let _section = self.space().srcu.read_lock();
        let mut find = Find { pages: false, found: None };
        let done = self.visit(range, &mut Budget::new(slice, self.mmu()), &mut find);
        let Some((gfn, level)) = find.found else { return Ok(done) };
        let size = level.pages();
        let most = if level == Level::MIB2 { BATCH as u64 } else { 1 };
        let end = (gfn.get() + most * size).min(range.end.get().next_multiple_of(size));
        // What it has not split, it finds once more.
        range.start = gfn;
        self.split_batch(gfn..Gfn::new(end), level)?;
        Ok(false)
    }

    /// Splits blocks of `level` that are in one table, as many of `gfns` as are at once.
    fn split_batch(&self, gfns: Range<Gfn>, level: Level) -> Result<(), Error> {
        let Some(above) = self.table_of(gfns.start, level) else { return Ok(()) };
        let end = level.above().first(gfns.start).get() + level.above().pages();
        let firsts = (gfns.start.get()..gfns.end.get().min(end)).step_by(level.pages() as usize);
        let mut batch: [Option<Split<'_, F>>; BATCH] = [const { None }; BATCH];
        let mut outcome = Ok(());
        for (place, first) in batch.iter_mut().zip(firsts) {
            match self.prepare(self.cell(above, level, Gfn::new(first)), Gfn::new(first), level) {
                Ok(split) => *place = split,
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        let mut flush = Flush::new();
        for place in &mut batch {
            let Some(split) = place else { continue };
            if split.cell.replace(split.block, Entry::FROZEN) {
                let new = Entry::table(split.table);
                if split.block.requires_break_before_make(level, new, true) {
                    flush.add(split.gfn, level);
                }
            } else {
                self.free_table(split.table);
                *place = None;
            }
        }
        flush.finish(self);
        let split = batch.into_iter().flatten();
        self.charge_entries(split.fold(0, |count, Split { cell, gfn, table, .. }| {
            self.children().note::<F>(level, gfn);
            self.space().parking.thaw(cell, Entry::table(table), self.mmu());
            count + 1
        }));
        outcome
    }

    /// The table with the pages of the block in `cell`, if there is one.
    fn prepare<'a>(
        &self,
        cell: Cell<'a, F>,
        gfn: Gfn,
        level: Level,
    ) -> Result<Option<Split<'a, F>>, Error> {
        let block = cell.load();
        if block.state(level) != State::Leaf {
            return Ok(None);
        }
        let table = self.allocate_table()?;
        self.fill_with_parts(table, block, level);
        Ok(Some(Split { cell, gfn, block, table }))
    }

    /// The table in which `gfn` has an entry of `level`, if there is one.
    fn table_of(&self, gfn: Gfn, level: Level) -> Option<Pfn> {
        let (mut table, mut at) = (self.top(), F::TOP);
        while at > level {
            match self.cell(table, at, gfn).load().state(at) {
                State::Table(below) => (table, at) = (below, below_of(at)),
                _ => return None,
            }
        }
        Some(table)
    }
}

/// A block, and the table that is to take its place.
struct Split<'a, F> {
    cell: Cell<'a, F>,
    gfn: Gfn,
    block: Entry<F>,
    table: Pfn,
}

/// Finds the first leaf that is a page, or the first that is a block.
struct Find {
    pages: bool,
    found: Option<(Gfn, Level)>,
}

impl<F: Format> Visitor<F> for Find {
    fn leaf(&mut self, _root: &Root<F>, at: &At<'_, F>) -> bool {
        if self.pages == (at.level == Level::PAGE) {
            self.found = Some((at.gfn, at.level));
        }
        true
    }

    fn is_full(&self) -> bool {
        self.found.is_some()
    }
}
