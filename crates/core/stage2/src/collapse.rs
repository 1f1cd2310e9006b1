//! Blocks in the place of tables, several at a time.
//!
//! A dirty log leaves tables of pages where there were blocks. When it is switched off, they become blocks again. A fault
//! does that for one block ([`Grant::map`]), and has the TLBs forget the table at once. Here one invalidation covers
//! several blocks.
//!
//! A *batch* is up to [`BATCH`] blocks. The host is asked about all of them first, as long as nothing is frozen: a caller
//! that changes something for the host may wait for an entry. Then the entries of their tables are frozen, one after the
//! other, by compare-exchange.
//! Then the sequence is asked about each; what it refuses is thawed as it was. Where the format requires
//! break-before-make, the TLBs forget the tables now. Then the entries are thawed as blocks, and the tables are taken
//! apart. A batch waits for nothing but TLBs while it has entries frozen: an entry that another CPU has frozen or changed
//! is left as it is.
//!
//! A *slice* is as many batches as its budget allows. Where the format requires no break-before-make, the TLBs forget the
//! tables of all of them by one invalidation. A table is buried after that. A CPU that still remembers a way to a table
//! finds in it what it found before: pages of the block's frames, with no more rights than the block has.
//!
//! The fence \[install\] comes after all freezes of a batch, and before the sequence is asked of any
//! ([`sequence`](crate::sequence)).

use core::mem::replace;
use core::ops::Range;

use mayfly_platform::address::{Gfn, Pfn};
use mayfly_platform::sync::{Ordering, fence};

use crate::cell::Cell;
use crate::flush::{Changing, Flush};
use crate::grant::Grant;
use crate::graveyard::BOUND;
use crate::level::below_of;
use crate::prune::NOTHING;
use crate::range::{Budget, Slice};
use crate::root::Root;
use crate::sequence::Seen;
use crate::{Entry, Format, Level, Permissions, State};

/// Blocks that are put in place together.
const BATCH: usize = 32;

/// A table whose entry is frozen, and the block that is to take its place.
struct Frozen<'a, F: Format> {
    cell: Cell<'a, F>,
    entry: Entry<F>,
    table: Pfn,
    level: Level,
    block: Entry<F>,
    gfns: Range<Gfn>,
    seen: Seen,
}

/// A slice of blocks that are put in place. When this is dropped, also where the host's code has panicked meanwhile, TLBs
/// have forgotten the tables, which are buried.
struct Collapsing<'a, F: Format> {
    root: &'a Root<F>,
    changing: Option<Changing<'a, F>>,
    flush: Flush,
    /// Where blocks were put in place.
    gfns: Range<Gfn>,
    count: usize,
}

impl<F: Format> Drop for Collapsing<'_, F> {
    fn drop(&mut self) {
        let Self { root, changing, flush, gfns, count } = self;
        let Some(changing) = changing.take() else { return };
        changing.finish(replace(flush, Flush::new()), gfns.clone());
        if *count > 0 {
            root.note_buried();
        }
        root.charge_entries(*count as u64);
    }
}

impl<'a, F: Format> Collapsing<'a, F> {
    fn batch(&mut self, grants: &[Option<Grant<'a, F>>; BATCH]) {
        let Self { root, flush, gfns: all, count, .. } = self;
        if root.role().marks_writes() {
            return;
        }
        let mut batch: [Option<Frozen<'_, F>>; BATCH] = [const { None }; BATCH];
        for (place, grant) in batch.iter_mut().zip(grants) {
            *place = grant.as_ref().and_then(|grant| root.freeze_table(grant));
        }
        // [install]
        fence(Ordering::SeqCst);
        let space = root.space();
        for place in &mut batch {
            if let Some(frozen) = place
                && !space.sequence.permits(&frozen.gfns, frozen.seen)
            {
                space.parking.thaw(frozen.cell, frozen.entry, root.mmu());
                *place = None;
            }
        }
        let mut broken = Flush::new();
        for Frozen { entry, level, block, gfns, .. } in batch.iter().flatten() {
            *all = all.start.min(gfns.start)..all.end.max(gfns.end);
            if entry.requires_break_before_make(*level, *block, false) {
                broken.add_range(gfns.clone());
            } else {
                flush.add_table(gfns.start, *level);
            }
        }
        broken.finish(root);
        for Frozen { cell, block, .. } in batch.iter().flatten() {
            space.parking.thaw(*cell, *block, root.mmu());
        }
        for Frozen { table, level, .. } in batch.into_iter().flatten() {
            root.dismantle(table, below_of(level), flush);
            *count += 1;
        }
    }
}

impl<F: Format> Root<F> {
    /// Puts the blocks that are granted in the place of the tables that are there. Uses up as many grants, of this root, as
    /// a slice has room for, 32 together: each takes one of its entries. Leaves what is no table (a block already, or
    /// nothing), what another CPU is just changing, and what has changed since the grant's sample. Returns how many blocks
    /// it has put in place.
    ///
    /// The TLBs are invalidated once; where the format requires break-before-make, once for each 32 blocks. Uses up no
    /// grant where too many tables await their readers already ([`Stage2::collect_tables`](crate::Stage2::collect_tables));
    /// and puts nothing in place where the role marks writes.
    pub fn collapse<'a>(
        &'a self,
        slice: Slice,
        grants: impl IntoIterator<Item = Option<Grant<'a, F>>>,
    ) -> usize {
        let (mut grants, mut budget) = (grants.into_iter(), Budget::new(slice, self.mmu()));
        let most = slice.entries.clamp(1, BATCH as u32) as usize;
        let (changing, flush) = (Some(Changing::begin(self)), Flush::new());
        let mut slice = Collapsing { root: self, changing, flush, gfns: NOTHING, count: 0 };
        while self.space().graveyard.count() + slice.flush.dead() < BOUND {
            let mut batch: [Option<Grant<'_, F>>; BATCH] = [const { None }; BATCH];
            let mut taken = 0;
            for (place, grant) in batch[..most].iter_mut().zip(&mut grants) {
                taken += 1;
                *place = grant.filter(|grant| core::ptr::eq(grant.root, self));
            }
            slice.batch(&batch);
            if taken < most || budget.spend(taken as u32).is_break() {
                break;
            }
        }
        slice.count
    }

    /// Freezes the entry that a block is granted for, if that is a table.
    fn freeze_table<'a>(&'a self, grant: &Grant<'_, F>) -> Option<Frozen<'a, F>> {
        let (level, seen) = (grant.level, grant.seen);
        let leaf = grant.leaf().ok()?;
        let gfns = Self::span(grant.gfn, level).ok()?;
        let (mut table, mut at) = (self.top(), F::TOP);
        let (cell, entry, below) = loop {
            let cell = self.cell(table, at, gfns.start);
            let entry = cell.load();
            let State::Table(below) = entry.state(at) else { return None };
            if at == level {
                break (cell, entry, below);
            }
            (table, at) = (below, below_of(at));
        };
        if !self.space().sequence.permits(&gfns, seen) {
            return None;
        }
        if leaf.permissions.contains(Permissions::WRITE) {
            self.pay_to_write(&gfns, leaf.pfn);
        }
        let block = Entry::leaf(level, leaf);
        cell.replace(entry, Entry::FROZEN).then_some(Frozen {
            cell,
            entry,
            table: below,
            level,
            block,
            gfns,
            seen,
        })
    }
}
