//! Zapping pages that are picked out of a range: for memory that goes back to what it was once.
//!
//! A VM that goes back has changed some pages, and all others are as they were. So only these pages are zapped. The
//! entries between them are not visited, and stay: the cost grows with the number of pages, and with that of the tables
//! that lead to them.
//!
//! The guest's own tables are among such pages. So what CPUs remember of *them* is wrong as well, and no entry here says
//! of which addresses: a TLB that has put both stages together keeps such an address also where stage 2 maps the page as
//! before. So the last slice of each root has every CPU forget all that it remembers under the root's VMID, whether it
//! has changed an entry or not. This is after the change of every entry, and before the call returns. (The invalidation
//! is the one that any slice owes for what it has changed: **\[counted\]** and **\[met\]** of [`flush`](crate::flush)
//! hold as for other zaps.)

use core::ops::Range;

use mayfly_platform::address::Gfn;

use crate::flush::{Changing, Flush};
use crate::range::{At, Budget, Run, Slice, Visitor};
use crate::root::Root;
use crate::sequence::Announcement;
use crate::{Entry, Format, Level, Stage2};

impl<F: Format> Stage2<F> {
    /// Zaps the pages of `gfns` that `next` leads to, in every root, slice by slice: each page and block that maps one of
    /// them, blocks as a whole. Tables stay. When this returns no CPU uses what was mapped there, and none remembers
    /// anything of the guest's own tables.
    ///
    /// `next` says which pages are to be zapped next, from some page on: of those that follow each other, the first and the
    /// one behind the last. If there are none, it names some behind the range, or an empty range there.
    ///
    /// Until `announcement` ends no fault installs anything of the range again. Waits as [`Stage2::zap`].
    ///
    /// # Panics
    ///
    /// As [`Stage2::zap`].
    pub fn zap_picked(
        &self,
        announcement: &Announcement,
        gfns: Range<Gfn>,
        slice: Slice,
        next: impl Fn(Gfn) -> Range<Gfn>,
    ) {
        self.check_announced(announcement, &gfns);
        self.in_slices(gfns, |root, left| root.zap_picked_slice(left, &next, slice));
    }
}

impl<F: Format> Root<F> {
    /// Zaps what `next` leads to in what is left of `range`, one slice of it. The TLBs have forgotten what was zapped when
    /// this returns; and everything, if it returns that all is done.
    fn zap_picked_slice(
        &self,
        range: &mut Range<Gfn>,
        next: &dyn Fn(Gfn) -> Range<Gfn>,
        slice: Slice,
    ) -> bool {
        let _section = self.space().srcu.read_lock();
        let (changing, from) = (Changing::begin(self), range.start);
        let known = range.start..range.start;
        let mut picked = Picked { next, known, flush: Flush::new(), entries: 0 };
        let done = self.visit(range, &mut Budget::new(slice, self.mmu()), &mut picked);
        if done {
            picked.flush.add_range(Gfn::new(0)..Self::LIMIT);
        }
        changing.finish(picked.flush, from..range.start);
        self.charge_entries(picked.entries);
        done
    }
}

struct Picked<'a> {
    next: &'a dyn Fn(Gfn) -> Range<Gfn>,
    /// What it has said last.
    known: Range<Gfn>,
    flush: Flush,
    entries: u64,
}

impl<F: Format> Visitor<F> for Picked<'_> {
    fn leaf(&mut self, root: &Root<F>, at: &At<'_, F>) -> bool {
        if !at.whole {
            // What is beside the range may be mapped again at once.
            let done = root.zap_block(at);
            self.entries += u64::from(done);
            return done;
        }
        if !at.cell.replace(at.entry, Entry::EMPTY) {
            return false;
        }
        self.flush.add(at.gfn, at.level);
        self.entries += 1;
        true
    }

    fn leaves(&mut self, run: &Run<'_>) -> u32 {
        // The first is picked, since the walk is here.
        let picked = self.known.end.get().saturating_sub(run.gfn.get());
        let most =
            if run.level == Level::PAGE { picked.min(u64::from(run.count)) as u32 } else { 0 };
        let count = self.flush.empty_run::<F>(run, most);
        self.entries += u64::from(count);
        count
    }

    #[inline]
    fn next(&mut self, gfn: Gfn) -> Gfn {
        if gfn >= self.known.end {
            self.known = (self.next)(gfn);
            if self.known.is_empty() {
                return Gfn::new(u64::MAX);
            }
        }
        gfn.max(self.known.start)
    }
}
