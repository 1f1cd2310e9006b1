//! Taking rights and marks away, and leaving the mappings.

use core::ops::Range;

use mayfly_platform::address::Gfn;

use crate::flush::{Changing, Flush};
use crate::range::{At, Budget, Slice, Visitor};
use crate::root::Root;
use crate::{Entry, Format, Leaf, Permissions};

impl<F: Format> Root<F> {
    /// Write-protects what is left of `range`, one slice of it; blocks as a whole. Returns whether all is done; no CPU
    /// writes through the old entries when this returns. `each` is called for each leaf that was writable, with its
    /// first frame.
    pub(crate) fn write_protect_slice(
        &self,
        range: &mut Range<Gfn>,
        slice: Slice,
        each: &mut dyn FnMut(Gfn, u64),
    ) -> bool {
        let space = self.space();
        let _section = space.srcu.read_lock();
        let (changing, from) = (Changing::begin(self), range.start);
        let mut protect = WriteProtect { flush: Flush::new(), each };
        let done = self.visit(range, &mut Budget::new(slice, &*space.tables.mmu), &mut protect);
        changing.finish(protect.flush, from..range.start);
        done
    }

    /// Clears the accessed mark in what is left of `range`, one slice of it. Returns whether all is done. `each` is
    /// called for each leaf that had the mark.
    ///
    /// TLBs are left alone, as Linux does: an access through an entry that is still in one may go unnoticed until it
    /// leaves it.
    pub(crate) fn age_slice(
        &self,
        range: &mut Range<Gfn>,
        slice: Slice,
        each: &mut dyn FnMut(Gfn, u64),
    ) -> bool {
        let space = self.space();
        let _section = space.srcu.read_lock();
        self.visit(range, &mut Budget::new(slice, &*space.tables.mmu), &mut Age { each })
    }
}

struct WriteProtect<'a> {
    flush: Flush,
    each: &'a mut dyn FnMut(Gfn, u64),
}

impl<F: Format> Visitor<F> for WriteProtect<'_> {
    fn leaf(&mut self, _root: &Root<F>, at: &At<'_, F>) -> bool {
        let leaf = at.entry.to_leaf(at.level);
        if !leaf.permissions.contains(Permissions::WRITE) {
            return true;
        }
        let permissions = leaf.permissions - Permissions::WRITE;
        let done = at.cell.replace(at.entry, Entry::leaf(at.level, &Leaf { permissions, ..leaf }));
        if done {
            self.flush.add(at.gfn, at.level);
            (self.each)(at.gfn, at.level.pages());
        }
        done
    }
}

struct Age<'a> {
    each: &'a mut dyn FnMut(Gfn, u64),
}

impl<F: Format> Visitor<F> for Age<'_> {
    fn leaf(&mut self, _root: &Root<F>, at: &At<'_, F>) -> bool {
        let leaf = at.entry.to_leaf(at.level);
        if !leaf.accessed {
            return true;
        }
        let aged = Entry::leaf(at.level, &Leaf { accessed: false, ..leaf });
        let done = at.cell.replace(at.entry, aged);
        if done {
            (self.each)(at.gfn, at.level.pages());
        }
        done
    }
}
