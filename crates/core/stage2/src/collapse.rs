//! Blocks in the place of tables, several at a time.
//!
//! A dirty log leaves tables of pages where there were blocks. When it is switched off, they become blocks again. A fault
//! does that for one block ([`Grant::map`]), and has the TLBs forget the table at once. Here one invalidation covers
//! several blocks.
//!
//! A *batch* is up to [`BATCH`] blocks. The entries of their tables are frozen, one after the other, by compare-exchange.
//! Then the sequence is asked about each; what it refuses is thawed as it was. Where the format requires
//! break-before-make, the TLBs forget the tables now. Then the entries are thawed as blocks; the tables are taken apart,
//! and buried when the TLBs have forgotten them. A batch waits for nothing but TLBs while it has entries frozen: an entry
//! that another CPU has frozen or changed is left as it is.
//!
//! The fence \[install\] comes after all freezes of the batch, and before the sequence is asked of any
//! ([`sequence`](crate::sequence)).

use core::ops::Range;

use mayfly_platform::address::{Gfn, Pfn};
use mayfly_platform::sync::{Ordering, fence};

use crate::cell::Cell;
use crate::flush::{Changing, Flush};
use crate::grant::Grant;
use crate::graveyard::BOUND;
use crate::level::below_of;
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

impl<F: Format> Root<F> {
    /// The most grants that [`Root::collapse`] takes.
    pub const MOST_COLLAPSED: usize = BATCH;

    /// Puts the blocks that are granted in the place of the tables that are there. Uses up the grants, of this root, and
    /// of [`Root::MOST_COLLAPSED`] places at most. Leaves what is no table (a block already, or nothing), what another
    /// CPU is just changing, and what has changed since the grant's sample. Returns how many blocks it has put in place.
    ///
    /// The TLBs are invalidated once. Puts nothing in place where too many tables await their readers already
    /// ([`Stage2::collect_tables`](crate::Stage2::collect_tables)), or where the role marks writes.
    pub fn collapse(&self, grants: &mut [Option<Grant<'_, F>>]) -> usize {
        if self.role().marks_writes() || self.space().graveyard.count() >= BOUND {
            return 0;
        }
        let mut batch: [Option<Frozen<'_, F>>; BATCH] = [const { None }; BATCH];
        for (place, grant) in batch.iter_mut().zip(grants) {
            let here = grant.take().filter(|grant| core::ptr::eq(grant.root, self));
            *place = here.and_then(|grant| self.freeze_table(&grant));
        }
        // [install]
        fence(Ordering::SeqCst);
        let space = self.space();
        for place in &mut batch {
            if let Some(frozen) = place
                && !space.sequence.permits(&frozen.gfns, frozen.seen)
            {
                space.parking.thaw(frozen.cell, frozen.entry, self.mmu());
                *place = None;
            }
        }
        let changing = Changing::begin(self);
        let mut flush = Flush::new();
        let mut hull = Gfn::new(u64::MAX)..Gfn::new(0);
        let mut broken = hull.clone();
        for Frozen { entry, level, block, gfns, .. } in batch.iter().flatten() {
            hull = hull.start.min(gfns.start)..hull.end.max(gfns.end);
            if entry.requires_break_before_make(*level, *block, false) {
                broken = hull.clone();
            } else {
                flush.add_table(gfns.start, *level);
            }
        }
        self.forget_all(&broken);
        for Frozen { cell, block, .. } in batch.iter().flatten() {
            space.parking.thaw(*cell, *block, self.mmu());
        }
        let mut count = 0;
        for Frozen { table, level, .. } in batch.into_iter().flatten() {
            self.dismantle(table, below_of(level), &mut flush);
            count += 1;
        }
        changing.finish(flush, if count > 0 { hull } else { Gfn::new(0)..Gfn::new(0) });
        if count > 0 {
            self.note_buried();
        }
        self.charge_entries(count as u64);
        count
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
