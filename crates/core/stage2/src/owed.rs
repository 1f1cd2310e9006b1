//! Invalidations that are owed: a page has come to be in another frame of the same contents, and TLBs may go on having
//! the old one for a while.
//!
//! While two frames hold the same bytes, and nobody writes to either, nobody can tell which of them a CPU reads. So who
//! replaces a read-only page's frame by another of the same contents ([`Stage2::replace_owing`]) need not have the TLBs
//! forget the old one at once. Most pages are merged one after the other, and some are written soon after, which takes
//! an invalidation of the page anyhow: that one pays for both.
//!
//! # What holds
//!
//! A *debt* says: TLBs may have page `gfn` by a frame that its entry, in the root of this VMID, names no more; the entry
//! names frame `new`. It is *paid* by an invalidation of the page under that VMID, which was issued when the entry had
//! been changed, and is complete. Debts are numbered in the order in which they are made.
//!
//! - **The old frame** is its host's to keep as it is: neither freed nor written before the debt is paid. [`Owed`] says
//!   whether that is so; dropped, it is. The host neither writes to the new frame before by itself.
//! - **The right to write** is given to no page of which something is owed, nor to any that is in the same frame
//!   ([`Ledger::pay_for`]): a CPU on the old frame would miss what is written to the new one. The page may be mapped at
//!   several places, and in several roots, of which one asks; the frame is what they have in common.
//!   - A fault pays before it freezes the entry. A debt that concerns it was made inside an invalidation of all the
//!     places of the page. If that was over when the fault sampled the sequence, the fault finds the debt; otherwise it
//!     is refused when it has frozen the entry (`sequence`: \[install\], \[announce\]).
//!   - [`Stage2::allow_writes`] comes after the calls that have replaced the frame, from the same host.
//! - **Another frame**: a replacement that owes pays before what was owed of the page. One that does not is an
//!   invalidation of the page itself, after the change: until then TLBs may have one more frame, of the same contents.
//! - **Other contents, or nothing**: an entry that becomes empty is invalidated before anybody fills it.
//! - **Another size**: a block in the place of a table, or a table that goes, is an invalidation of all of it. A block
//!   has nothing owed: it is split before a page of it is replaced.
//!
//! An entry does not show what is owed, since what it shows could be lost: with its table, or as the same frame is
//! mapped anew. The ledger is the only record, and errs on the safe side: a debt may stay in it that nothing is owed
//! for any more (the VMID is given to another root by now, or the page was zapped before the debt was written down),
//! and costs an invalidation then.
//!
//! # Who pays
//!
//! Every invalidation under a VMID pays what it covers ([`Root::invalidate_tlb`]): it reads which number comes next
//! before it is issued, and afterwards strikes out the debts below that. One of pages alone is extended by pages beside
//! them of which something is owed: so where pages are merged one after the other, each write-protection pays for the
//! merge before. What is not paid in passing is paid when
//! [`BOUND`](ledger::BOUND) debts are open, all at once, those of pages that follow each other, but for `GAP`, by one invalidation;
//! or when it is asked for. By address, as far as that goes: an invalidation of the whole VMID would cost guests what
//! they have of other pages.
//!
//! # Orders
//!
//! - **\[owe\]** is the release of the next number, after the entry was changed and the debt written down; **\[due\]** the
//!   acquire of its load. Who is to strike a debt out has issued his invalidation after the change. He may have stored
//!   nothing since: that the invalidation comes after the load is the platform's part, whose barrier is of loads too
//!   (`Tlb`; `litmus/S2+owe+pay`).
//! - **\[paid\]** is the release that strikes a debt out, after the invalidation was complete; it pairs with the acquires
//!   of those who look whether there is one: what they do with the frames comes after the last access by the old entry.
//!
//! Debts are written down and struck out under a lock, which nobody holds while he waits for a TLB. Those who look take
//! none: a debt that concerns them is neither made nor moved meanwhile, and of one that is struck out it is of no
//! matter what they find. So a vCPU waits for TLBs here, where it comes upon a debt, and for nobody else but one who
//! strikes out another.

mod ledger;

use core::ops::Range;

use mayfly_platform::address::{Gfn, Pfn};
use mayfly_platform::memory::Shared;

pub(crate) use ledger::Ledger;

use ledger::Page;

use crate::range::Slice;
use crate::replace::Replacement;
use crate::root::Root;
use crate::sequence::Announcement;
use crate::space::Space;
use crate::{Format, Leaf, Stage2};

impl<F: Format> Root<F> {
    /// Pays what is owed of `gfns`, and of what else is in the frames from `pfn` on that they are about to be mapped to,
    /// to be written.
    #[inline]
    pub(crate) fn pay_to_write(&self, gfns: &Range<Gfn>, pfn: Pfn) {
        let end = pfn.get() + (gfns.end.get() - gfns.start.get());
        self.space().owed.pay_for(gfns, &(pfn..Pfn::new(end)), self.mmu());
    }

    /// Pays what is owed of page `gfn` of this root.
    pub(crate) fn pay_for_page(&self, gfn: Gfn) {
        if let Some(vmid) = self.vmid() {
            self.space().owed.pay_page(Page::new(vmid, gfn), self.mmu());
        }
    }

    /// Extends `gfns`, pages that are about to be invalidated, by those next to them of which something is owed.
    pub(crate) fn add_owed_neighbours(&self, gfns: &mut Range<Gfn>) {
        let owed = &self.space().owed;
        if owed.due().is_some()
            && let Some(vmid) = self.vmid()
        {
            owed.add_neighbours(vmid, gfns);
        }
    }

    /// Whether something is owed of page `gfn` of this root.
    pub(crate) fn owes(&self, gfn: Gfn) -> bool {
        self.vmid().is_some_and(|vmid| self.space().owed.has(Page::new(vmid, gfn)))
    }

    /// The entry of page `gfn` names frame `new` by now, of the same contents as what TLBs may have. Returns the number
    /// of the debt, where it is one: no TLB may have anything, or it was paid at once for want of memory.
    pub(crate) fn owe(&self, gfn: Gfn, new: Pfn) -> Option<u64> {
        let vmid = self.vmid()?;
        let Some(debts) = self.space().owed.begin::<F>() else {
            self.forget(gfn, crate::Level::PAGE);
            return None;
        };
        loop {
            let number = debts.write_down(Page::new(vmid, gfn), new, self.mmu());
            if number.is_some() {
                return number;
            }
            debts.pay(u64::MAX, |_, _| true, self.mmu());
        }
    }
}

impl<F: Format> Stage2<F> {
    /// As [`Stage2::replace`], but TLBs may go on having the old frames of the pages that are changed in place: what
    /// this returns says until when, and the host neither frees nor writes the old frames, nor writes the new ones, as
    /// long as that is not [paid](Owed::is_paid). (The guest may be given the right to write at any time: that pays.)
    ///
    /// A VM owes 64 pages in a root at most. What comes on top pays for all.
    ///
    /// # Panics
    ///
    /// As [`Stage2::replace`].
    pub fn replace_owing(
        &self,
        announcement: &Announcement,
        gfns: Range<Gfn>,
        slice: Slice,
        with: impl Fn(Gfn) -> Option<Replacement>,
        mut prepare: impl FnMut(&Leaf),
    ) -> Owed {
        self.check_announced(announcement, &gfns);
        let mut below = 0;
        self.in_slices(gfns, |root, left| {
            root.replace_slice(left, &with, slice, Some(&mut below), &mut prepare)
        });
        Owed { space: self.space().clone(), below }
    }

    /// Nothing, to which [something is added](Owed::add).
    pub fn owing_nothing(&self) -> Owed {
        Owed { space: self.space().clone(), below: 0 }
    }
}

/// What TLBs are owed for frames that were replaced: they may have the old ones. Dropped, it is paid, for which TLBs are
/// waited for.
#[must_use = "dropped at once, it is paid at once"]
pub struct Owed {
    space: Shared<Space>,
    below: u64,
}

impl Owed {
    /// Whether no CPU has any of the old frames any more, so that dropping this costs nothing. May say no for the sake
    /// of what the VM has owed for longer.
    pub fn is_paid(&self) -> bool {
        self.space.owed.debts().is_none_or(|debts| debts.open(self.below).next().is_none())
    }

    /// Pays; and what the VM has owed for longer.
    pub fn pay(self) {}

    /// Adds what the same VM owes besides.
    ///
    /// # Panics
    ///
    /// If `other` is another VM's.
    pub fn add(&mut self, mut other: Self) {
        assert!(self.space.is(&other.space), "it is another VM that owes this");
        self.below = self.below.max(core::mem::take(&mut other.below));
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        if let Some(debts) = self.space.owed.debts() {
            debts.pay(self.below, |_, _| true, &*self.space.tables.mmu);
        }
    }
}

impl core::fmt::Debug for Owed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Owed").field("paid", &self.is_paid()).finish_non_exhaustive()
    }
}
