//! Owed invalidations: a page has moved to another frame of the same contents, and TLBs may keep the old frame for a
//! while.
//!
//! While two frames hold the same bytes, and nothing writes to either, nothing can tell which of them a CPU reads. So a
//! call that replaces a read-only page's frame by another one of the same contents ([`Stage2::replace_owing`]) need not
//! have the TLBs forget the old frame at once. Most pages are merged one after the other, and some are written soon
//! after. Such a write takes an invalidation of the page anyhow, and that one invalidation pays for both.
//!
//! # What holds
//!
//! A *debt* says: TLBs may have page `gfn` by a frame that its entry, in the root of this VMID, no longer names; the
//! entry names frame `new`. The debt is *paid* by an invalidation of the page under that VMID that was issued after the
//! entry had been changed, and that is complete. Debts are numbered in the order in which they are made.
//!
//! - **The old frame:** its host keeps it as it is. The host neither frees it nor writes to it before the debt is paid.
//!   [`Owed`] says whether it is paid; dropping an [`Owed`] pays. Nor does the host itself write to the new frame
//!   before that.
//! - **The right to write** is given to no page of which something is owed, nor to any other page in the same frame
//!   ([`Ledger::pay_for`]): a CPU on the old frame would miss what is written to the new one. The page may be mapped at
//!   several places, and in several roots, and only one of them asks for the right; the frame is what they have in
//!   common.
//!   - A fault pays before it freezes the entry. A debt that concerns the fault was made inside an invalidation of all
//!     the places of the page. If that invalidation was over when the fault sampled the sequence, the fault finds the
//!     debt. Otherwise the fault is refused when it has frozen the entry (`sequence`: \[install\], \[announce\]).
//!   - [`Stage2::allow_writes`] comes after the calls that have replaced the frame, from the same host.
//! - **Another frame:** a replacement that owes pays first what was owed of the page. A replacement that does not owe
//!   is itself an invalidation of the page, after the change. Until then TLBs may have one more frame, of the same
//!   contents.
//! - **Other contents, or nothing:** an entry that becomes empty is invalidated before a fault fills it.
//! - **Another size:** a block in the place of a table, or the removal of a table, is an invalidation of all of it.
//!   Nothing is owed of a block: it is split before a page of it is replaced.
//!
//! An entry does not show what is owed, because that could be lost: with its table, or when the same frame is mapped
//! anew. The ledger is the only record, and errs on the safe side. A debt may stay in it of which nothing is owed any
//! more (the VMID has been given to another root, or the page was zapped before the debt was written down). Such a debt
//! costs an invalidation.
//!
//! # Who pays
//!
//! Every invalidation under a VMID pays what it covers ([`Root::invalidate_tlb`]): before it is issued, it reads which
//! number comes next, and afterwards it strikes out the debts below that number. An invalidation of pages alone is
//! extended by pages beside them of which something is owed. So where pages are merged one after the other, each
//! write-protection pays for the merge before.
//!
//! What is not paid in passing is paid when [`BOUND`](ledger::BOUND) debts are open, all at once, or when a caller asks
//! for it. One invalidation covers pages that follow each other, with gaps of at most `GAP` pages. Invalidations are by
//! address, as far as that is possible: an invalidation of the whole VMID would cost guests their translations of other
//! pages.
//!
//! # Orders
//!
//! - **\[owe\]** is the release of the next number, after the entry was changed and the debt written down; **\[due\]**
//!   is the acquire of its load. A CPU that is to strike a debt out has issued its invalidation after the change. It
//!   may have stored nothing since. The platform guarantees that the invalidation comes after the load: its barrier
//!   covers loads too (`Tlb`; `litmus/S2+owe+pay`).
//! - **\[paid\]** is the release that strikes a debt out, after the invalidation was complete. It pairs with the
//!   acquires of the CPUs that look whether there is a debt: what they do with the frames comes after the last access
//!   by the old entry.
//!
//! Debts are written down and struck out under a lock, which no CPU holds while it waits for a TLB. CPUs that only look
//! take no lock: a debt that concerns them is neither made nor moved meanwhile, and if a debt is being struck out,
//! either answer is right. So a vCPU waits for TLBs here, where it meets a debt, and otherwise only for a CPU that is
//! striking out another debt.

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
    /// Pays what is owed of `gfns`, and of what else is in the frames from `pfn` on that they are about to be mapped
    /// to, to be written.
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
    ///
    /// # Safety
    ///
    /// As [`Stage2::replace`]. Besides, the old frames stay the guest's to read, and nothing is written to the old
    /// frames, or by the host to the new ones, as long as what this returns is not [paid](Owed::is_paid). (If it is
    /// [forgotten](core::mem::forget), that may be for ever.)
    pub unsafe fn replace_owing(
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

/// What TLBs are owed for frames that were replaced: they may have the old ones. Dropped, it is paid, for which TLBs
/// are waited for.
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
