//! Replacing the frame of a page: a change by the host for which no vCPU has to fault.
//!
//! While a page moves to another frame, some CPUs read it from the old frame, which their TLBs remember, and others
//! from the new one. Nothing can tell the two apart, if both frames hold the same bytes and nothing writes to either.
//! So:
//!
//! | from | to | how |
//! | --- | --- | --- |
//! | read-only | another frame of the same contents, read-only | compare-exchange; the TLBs forget it |
//! | read-only | the same frame, writable | frozen while the sequence is asked |
//! | writable | the same frame, read-only | compare-exchange; the TLBs forget it (`protect`) |
//! | anything | another frame, or one that no entry can name | empty; the TLBs forget it |
//!
//! In the first three cases no vCPU finds the entry empty, or frozen while its holder waits for TLBs. Arm allows all
//! three: it requires break-before-make for another address only where either entry is writable, or contents differ.
//! ([`Format::requires_break_before_make`] is asked all the same: an entry is frozen for a format that requires it;
//! `litmus/S2+replace+reuse`.)
//!
//! A change from read-only to another frame that is writable takes two steps, so that neither step needs the break that
//! Arm would require for both in one. The steps are separate in every format, and the second begins when the first is
//! done in all roots and at all places. Otherwise one CPU would already write to the new frame, and another that still
//! reads the old frame would miss the writes. For the same reason nothing is replaced in place where contents differ:
//! once a CPU has read the new contents, no CPU may read the old ones.
//!
//! If the page belongs to a block, the block is split first, by a table that is allocated before anything is changed.
//! Without memory for that table, the block is zapped. An absent page is always correct: it only costs the fault that
//! brings it back. And the host's change, which has been made, cannot fail any more.

use core::cell::Cell;
use core::ops::Range;

use mayfly_platform::address::{Gfn, Pfn};
use mayfly_platform::sync::{Ordering, fence};

use crate::flush::{Changing, Flush};
use crate::format::nameable;
use crate::range::{At, Budget, Slice, Visitor};
use crate::root::Root;
use crate::sequence::Announcement;
use crate::{Entry, Format, Leaf, Level, MemoryType, Permissions, Stage2};

/// Another frame for a page, wherever it is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Replacement {
    /// The frame that it was in.
    pub old: Pfn,
    /// The frame that it is in now.
    pub new: Pfn,
    /// Whether both hold the same bytes, and nothing writes to either until the replacement is made.
    pub same_contents: bool,
}

impl<F: Format> Stage2<F> {
    /// Maps the pages of `gfns` that `with` names to their new frames, to be read, in every root that maps them to the
    /// old ones. No page is absent in between, and one invalidation covers each root and slice.
    ///
    /// A page becomes absent where that is not possible: where the guest could write to the old frame, where the
    /// contents differ, or where the page is mapped to another frame. An absent page stays absent. When this returns no
    /// CPU uses the old frames for these pages. `prepare` is called before any CPU can find a new frame, for each root
    /// that will have it, with the leaf that names it. Returns whether one of these pages was mapped, to whatever frame.
    ///
    /// Until `announcement` ends no fault brings an old frame back. At most one change of a page may be under way at a
    /// time. May be called from inside a section: it waits for TLBs alone.
    ///
    /// # Panics
    ///
    /// As [`Stage2::zap`].
    ///
    /// # Safety
    ///
    /// For each replacement that `with` names, whenever it is asked:
    ///
    /// - The guest may have the new frame at that page, to read and execute it, if it had the old one so. That holds as
    ///   [`Root::grant`] says of a frame that is granted: from now on, until a call has returned that takes it away.
    /// - [`Replacement::same_contents`] is only said of frames of which it is true.
    ///
    /// ```compile_fail,E0133
    /// #![forbid(unsafe_code)]
    /// use mayfly_platform::address::Gfn;
    /// use mayfly_stage2::{Announcement, Ept, Slice, Stage2};
    ///
    /// fn replace_nothing(stage2: &Stage2<Ept>, announcement: &Announcement) {
    ///     let page = Gfn::new(0)..Gfn::new(1);
    ///     stage2.replace(announcement, page, Slice::default(), |_| None, |_| ());
    /// }
    /// ```
    pub unsafe fn replace(
        &self,
        announcement: &Announcement,
        gfns: Range<Gfn>,
        slice: Slice,
        with: impl Fn(Gfn) -> Option<Replacement>,
        mut prepare: impl FnMut(&Leaf),
    ) -> bool {
        self.check_announced(announcement, &gfns);
        let found = Cell::new(false);
        let with = |gfn| with(gfn).inspect(|_| found.set(true));
        self.in_slices(gfns, |root, left| {
            root.replace_slice(left, &with, slice, None, &mut prepare)
        });
        found.get()
    }

    /// Makes page `gfn` writable in place, in every root that maps it to frame `pfn`; except in
    /// [`Role::MARKED`](crate::Role::MARKED), where the first write has to fault. Does nothing while another
    /// invalidation of the page than `announcement` is under way, which may be about to take the right to write away: a
    /// fault gives the right then.
    ///
    /// To be called when no CPU has the page by another frame any more.
    ///
    /// # Panics
    ///
    /// As [`Stage2::zap`].
    ///
    /// # Safety
    ///
    /// The guest may write to frame `pfn` through that page. That holds as [`Root::grant`] says of a frame that is
    /// granted to be written.
    ///
    /// ```compile_fail,E0133
    /// #![forbid(unsafe_code)]
    /// use mayfly_platform::address::{Gfn, Pfn};
    /// use mayfly_stage2::{Announcement, Ept, Stage2};
    ///
    /// fn allow(stage2: &Stage2<Ept>, announcement: &Announcement) {
    ///     stage2.allow_writes(announcement, Gfn::new(0), Pfn::new(1));
    /// }
    /// ```
    pub unsafe fn allow_writes(&self, announcement: &Announcement, gfn: Gfn, pfn: Pfn) {
        let (page, frame) = (gfn..Gfn::new(gfn.get() + 1), pfn..Pfn::new(pfn.get() + 1));
        self.check_announced(announcement, &page);
        self.space.owed.pay_for(&page, &frame, self.mmu());
        self.in_slices(page, |root, _| {
            root.widen_page(gfn, pfn);
            true
        });
    }
}

impl<F: Format> Root<F> {
    /// Has pages of what is left of `range`, one slice of it, mapped to the new frames that `with` says, to be read,
    /// where they are mapped to the old ones. Returns whether all is done; no CPU uses the old frames when this
    /// returns, unless that is owed: then the debts are below the number in `owing`. `prepare` is called with each leaf
    /// that names a new frame, before it can be found.
    pub(crate) fn replace_slice(
        &self,
        range: &mut Range<Gfn>,
        with: With<'_>,
        slice: Slice,
        owing: Option<&mut u64>,
        prepare: &mut dyn FnMut(&Leaf),
    ) -> bool {
        let _section = self.space().srcu.read_lock();
        let (changing, from) = (Changing::begin(self), range.start);
        let (flush, entries) = (Flush::new(), 0);
        let mut replace = Replace { range: range.clone(), with, owing, prepare, flush, entries };
        let done = self.visit(range, &mut Budget::new(slice, self.mmu()), &mut replace);
        changing.finish(replace.flush, from..range.start);
        self.charge_entries(replace.entries);
        done
    }

    /// Has page `gfn` writable where it is mapped to frame `pfn`, unless another invalidation of it is under way.
    pub(crate) fn widen_page(&self, gfn: Gfn, pfn: Pfn) {
        if self.role().marks_writes() {
            return;
        }
        let _section = self.space().srcu.read_lock();
        let mut widen = Widen { pfn, entries: 0 };
        let mut page = gfn..Gfn::new(gfn.get() + 1);
        while !self.visit(&mut page, &mut Budget::new(Slice::default(), self.mmu()), &mut widen) {}
        self.charge_entries(widen.entries);
    }
}

/// Which pages are replaced, and by what.
pub(crate) type With<'a> = &'a dyn Fn(Gfn) -> Option<Replacement>;

struct Replace<'a> {
    range: Range<Gfn>,
    with: With<'a>,
    owing: Option<&'a mut u64>,
    prepare: &'a mut dyn FnMut(&Leaf),
    flush: Flush,
    entries: u64,
}

impl Replace<'_> {
    /// Whether a page of the block is replaced.
    fn has_any<F: Format>(&self, at: &At<'_, F>) -> bool {
        let end = self.range.end.get().min(at.gfn.get() + at.level.pages());
        let pages = self.range.start.max(at.gfn).get()..end;
        pages.map(Gfn::new).any(|gfn| (self.with)(gfn).is_some())
    }

    /// Changes the entry, and owes the TLBs that.
    fn change<F: Format>(&mut self, at: &At<'_, F>, new: Entry<F>) -> bool {
        let done = at.cell.replace(at.entry, new);
        if done {
            self.entries += 1;
            self.flush.add(at.gfn, at.level);
        }
        done
    }
}

impl<F: Format> Visitor<F> for Replace<'_> {
    fn leaf(&mut self, root: &Root<F>, at: &At<'_, F>) -> bool {
        if at.level > Level::PAGE {
            return !self.has_any(at) || !root.split_at(at) && root.zap_block(at);
        }
        let Some(with) = (self.with)(at.gfn) else { return true };
        let present = at.entry.to_leaf(at.level);
        if present.pfn == with.new {
            if root.owes(at.gfn) {
                // Another call has left it so, or has been here under another name of the page.
                self.flush.add(at.gfn, at.level);
            }
            return true;
        }
        let in_place = present.pfn == with.old
            && with.same_contents
            && !present.permissions.contains(Permissions::WRITE)
            // Nothing but memory has contents.
            && present.memory == MemoryType::WriteBack
            // The fault that asks for it is told.
            && nameable::<F>(with.new, 1);
        if !in_place {
            return self.change(at, Entry::EMPTY);
        }
        // What was noted of the old frame is not true of the new one.
        let leaf = Leaf { pfn: with.new, dirty: false, written: false, ..present };
        (self.prepare)(&leaf);
        let new = Entry::leaf(at.level, &leaf);
        if at.entry.requires_break_before_make(at.level, new, true) {
            let done = root.break_and_make(at, new);
            self.entries += u64::from(done);
            done
        } else if let Some(below) = self.owing.as_deref_mut() {
            root.pay_for_page(at.gfn);
            let done = at.cell.replace(at.entry, new);
            if done {
                self.entries += 1;
                *below = root.owe(at.gfn, with.new).map_or(*below, |number| number + 1);
            }
            done
        } else {
            self.change(at, new)
        }
    }
}

struct Widen {
    pfn: Pfn,
    entries: u64,
}

impl<F: Format> Visitor<F> for Widen {
    fn leaf(&mut self, root: &Root<F>, at: &At<'_, F>) -> bool {
        let present = at.entry.to_leaf(at.level);
        let permissions = present.permissions | Permissions::WRITE;
        if permissions == present.permissions {
            return true;
        }
        if at.level > Level::PAGE {
            // Without memory it stays as it is, and a write faults.
            return !root.split_at(at);
        }
        if present.pfn != self.pfn {
            return true;
        }
        let space = root.space();
        if !at.cell.replace(at.entry, Entry::FROZEN) {
            return false;
        }
        // [install]
        fence(Ordering::SeqCst);
        let page = at.gfn..Gfn::new(at.gfn.get() + 1);
        // No TLB is told: a CPU that faults by the entry as it was is told (`litmus/S2+relax+local`).
        let new = if space.sequence.is_shared(&page) {
            at.entry
        } else {
            self.entries += 1;
            Entry::leaf(at.level, &Leaf { permissions, ..present })
        };
        space.parking.thaw(at.cell, new, root.mmu());
        true
    }
}
