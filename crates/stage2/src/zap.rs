//! Taking mappings away.

use core::ops::Range;

use mayfly_platform::address::{Gfn, Pfn};

use crate::flush::{Changing, Flush};
use crate::map::below_of;
use crate::range::{At, Budget, Slice, Visitor};
use crate::root::Root;
use crate::{Entry, Format, Leaf, Level};

/// What becomes of tables that have nothing left in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tables {
    /// They are taken out and freed: nothing is going to be mapped here soon.
    Free,
    /// They stay: what is mapped here is about to come back.
    Keep,
}

impl<F: Format> Root<F> {
    /// Zaps what is left of `range`, one slice of it: every page and block that maps something of it, blocks as a
    /// whole. Returns whether all is done; the TLBs have forgotten what was zapped when this returns.
    ///
    /// The caller has seen to it that no fault installs anything of the range meanwhile, by an invalidation that was
    /// [begun](crate::Stage2::begin_invalidation) or by
    /// [taking the memslot away](crate::Stage2::change_slots).
    ///
    /// `each` is told of every leaf that is zapped by itself, and not with its table.
    pub(crate) fn zap_slice(
        &self,
        range: &mut Range<Gfn>,
        tables: Tables,
        slice: Slice,
        each: &mut dyn FnMut(Gfn, Level, Leaf),
    ) -> bool {
        let space = self.space();
        let section = space.srcu.read_lock();
        let (changing, from) = (Changing::begin(self), range.start);
        let mut zap = Zap { tables, flush: Flush::new(), each };
        let done = self.visit(range, &mut Budget::new(slice, &*space.tables.mmu), &mut zap);
        changing.finish(zap.flush, from..range.start);
        drop(section);
        space.graveyard.collect(&space.tables, &space.srcu);
        done
    }

    /// Zaps a block that juts out of the range. What is beside the range may be mapped again at once, by pages, and
    /// operations there may come and go; so the TLBs forget the block before anybody finds the entry empty.
    fn zap_jutting(&self, at: &At<'_, F>) -> bool {
        let zapped = at.cell.replace(at.entry, Entry::FROZEN);
        if zapped {
            let mut flush = Flush::new();
            flush.add(at.gfn, at.level);
            flush.finish(self);
            self.space().parking.thaw(at.cell, Entry::EMPTY, &*self.space().tables.mmu);
        }
        zapped
    }
}

struct Zap<'a> {
    tables: Tables,
    flush: Flush,
    each: &'a mut dyn FnMut(Gfn, Level, Leaf),
}

impl<F: Format> Visitor<F> for Zap<'_> {
    fn leaf(&mut self, root: &Root<F>, at: &At<'_, F>) -> bool {
        if at.whole {
            if !at.cell.replace(at.entry, Entry::EMPTY) {
                return false;
            }
            self.flush.add(at.gfn, at.level);
        } else if !root.zap_jutting(at) {
            return false;
        }
        (self.each)(at.gfn, at.level, at.entry.to_leaf(at.level));
        true
    }

    /// Takes a table out with all that is below it; up to those that stand for 1 GiB, so that a slice has no more than
    /// the entries of one table to go through at a time. Larger ones stay, empty, until their root goes.
    fn table(&mut self, root: &Root<F>, at: &At<'_, F>, table: Pfn) -> Option<u32> {
        if self.tables == Tables::Keep || at.level > Level::GIB1 {
            return None;
        }
        if !at.cell.replace(at.entry, Entry::EMPTY) {
            return None;
        }
        self.flush.add(at.gfn, at.level);
        Some(root.dismantle(table, below_of(at.level), &mut self.flush))
    }
}
