//! The marks of leaves that may have been written past the caches, and the leaves that are mapped.
//!
//! Under [`Role::MARKED`] the fault of a first write ([`Grant::map`](crate::Grant::map)) puts a mark ([`Leaf::written`]) together with the
//! right to write, by one store. Taking the mark takes both, by one compare-exchange. So a leaf that may be written has
//! its mark at every moment. And a mark that is gone belongs to the caller that took it, which has the TLBs forget the
//! right to write before anything else is done. The mark in the entry is the only record. It needs no memory. It goes
//! where the entry goes (to the pages of a block that is split, to the same frame with other rights), and stays when a
//! dirty log takes the right to write away.

use core::ops::Range;

use mayfly_platform::address::{Gfn, Pfn};

use crate::flush::{Changing, Flush};
use crate::range::{At, Budget, Run, Slice, Visitor};
use crate::root::Root;
use crate::zap::Told;
use crate::{Entry, Format, Leaf, MemoryType, Permissions, Role, Stage2, State};

impl<F: Format> Stage2<F> {
    /// Takes the marks of `gfns`, and with each the right to write, in the roots of [`Role::MARKED`], slice by slice.
    ///
    /// `each` is told of the frames, first and number, outside of any section of this one's, and when no CPU writes to
    /// them any more through what was marked: what was written is in memory then. A mark that is put meanwhile is
    /// taken, or stays. Needs no invalidation under way, and no memory.
    pub fn take_written(&self, gfns: Range<Gfn>, slice: Slice, each: impl FnMut(Pfn, u64)) {
        self.take_written_those(gfns, slice, |_| true, each);
    }

    /// As [`Stage2::take_written`], of what is meant, as `meant` says of some frames whether any is.
    pub fn take_written_those(
        &self,
        gfns: Range<Gfn>,
        slice: Slice,
        meant: impl Fn(Range<Gfn>) -> bool,
        mut each: impl FnMut(Pfn, u64),
    ) {
        self.in_slices_of(Some(Role::MARKED), gfns, |root, left| {
            let mut told = Told::new();
            let done = root.take_written_slice(left, slice, &meant, &mut told);
            told.each_run(&mut each);
            done
        });
    }

    /// Tells `each` of the frames, first and number, of write-back memory that is mapped in `gfns`, once for each root
    /// that maps them; outside of any section of this one's, so that they may be mapped no more by then.
    pub fn each_mapped(&self, gfns: Range<Gfn>, slice: Slice, mut each: impl FnMut(Pfn, u64)) {
        self.in_slices_of(None, gfns, |root, left| {
            let mut told = Told::new();
            let done = root.look_slice(left, slice, &mut told);
            told.each_run(&mut each);
            done
        });
    }
}

impl<F: Format> Root<F> {
    fn take_written_slice(
        &self,
        range: &mut Range<Gfn>,
        slice: Slice,
        meant: Meant<'_>,
        told: &mut Told,
    ) -> bool {
        let _section = self.space().srcu.read_lock();
        let (changing, from) = (Changing::begin(self), range.start);
        let mut take = TakeWritten { flush: Flush::new(), meant, told };
        let done = self.visit(range, &mut Budget::new(slice, self.mmu()), &mut take);
        changing.finish(take.flush, from..range.start);
        done
    }

    fn look_slice(&self, range: &mut Range<Gfn>, slice: Slice, told: &mut Told) -> bool {
        let _section = self.space().srcu.read_lock();
        self.visit(range, &mut Budget::new(slice, self.mmu()), &mut Look { told })
    }
}

struct TakeWritten<'a> {
    flush: Flush,
    meant: Meant<'a>,
    told: &'a mut Told,
}

/// Says of some frames whether any of them is meant.
type Meant<'a> = &'a dyn Fn(Range<Gfn>) -> bool;

impl TakeWritten<'_> {
    /// Whether something is meant of what an entry stands for.
    fn is_meant<F: Format>(&self, at: &At<'_, F>) -> bool {
        (self.meant)(at.gfn..Gfn::new(at.gfn.get() + at.level.pages()))
    }
}

impl<F: Format> Visitor<F> for TakeWritten<'_> {
    fn leaf(&mut self, _root: &Root<F>, at: &At<'_, F>) -> bool {
        let leaf = at.entry.to_leaf(at.level);
        if !leaf.written || !self.is_meant(at) {
            return true;
        }
        let permissions = leaf.permissions - Permissions::WRITE;
        let taken = Leaf { permissions, written: false, ..leaf };
        let done = at.cell.replace(at.entry, Entry::leaf(at.level, &taken));
        if done {
            // Also where it was not writable: the call that has write-protected it may not have invalidated it yet.
            self.flush.add(at.gfn, at.level);
            self.told.add(at.gfn, at.level, leaf);
        }
        done
    }

    /// Those without a mark, which most are: nothing is done with them.
    fn leaves(&mut self, run: &Run<'_>) -> u32 {
        let is_unmarked = |number: &u32| {
            let entry = run.cell::<F>(*number).load();
            entry.state(run.level) == State::Leaf && !entry.to_leaf(run.level).written
        };
        (0..run.count).take_while(is_unmarked).count() as u32
    }

    fn table(&mut self, _root: &Root<F>, at: &At<'_, F>, _table: Pfn) -> Option<u32> {
        (!self.is_meant(at)).then_some(1)
    }

    fn is_full(&self) -> bool {
        self.told.is_full()
    }
}

struct Look<'a> {
    told: &'a mut Told,
}

impl<F: Format> Visitor<F> for Look<'_> {
    fn leaf(&mut self, _root: &Root<F>, at: &At<'_, F>) -> bool {
        let leaf = at.entry.to_leaf(at.level);
        if leaf.memory == MemoryType::WriteBack {
            self.told.add(at.gfn, at.level, leaf);
        }
        true
    }

    fn is_full(&self) -> bool {
        self.told.is_full()
    }
}

impl Told {
    /// Tells `each` of the frames, those that follow each other together.
    fn each_run(&self, each: &mut impl FnMut(Pfn, u64)) {
        let mut run: Option<(u64, u64)> = None;
        for (_, level, leaf) in self.leaves() {
            let (first, count) = (leaf.pfn.get(), level.pages());
            run = match run {
                Some((start, length)) if start + length == first => Some((start, length + count)),
                Some((start, length)) => {
                    each(Pfn::new(start), length);
                    Some((first, count))
                }
                None => Some((first, count)),
            };
        }
        if let Some((start, length)) = run {
            each(Pfn::new(start), length);
        }
    }
}
