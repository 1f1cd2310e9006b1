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
//! [`BOUND`] debts are open, all at once, those of pages that follow each other, but for [`GAP`], by one invalidation;
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

use core::ops::Range;
use core::ptr::null_mut;

use mayfly_platform::address::{Gfn, Pfn};
use mayfly_platform::lock::Lock;
use mayfly_platform::memory::{Shared, try_box};
use mayfly_platform::sync::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use mayfly_platform::tlb::{Entries, Scope, Span, Vmid};
use mayfly_platform::{Mmu, Op};

use crate::flush::breaks_blocks;
use crate::range::Slice;
use crate::replace::Replacement;
use crate::root::Root;
use crate::sequence::Announcement;
use crate::space::Space;
use crate::{Format, Leaf, Stage2};

/// Debts that a VM may have: pages in a root each, and so the old frames that its host keeps for it.
pub(crate) const BOUND: usize = if cfg!(any(mayfly_loom, mayfly_shuttle)) { 2 } else { 64 };

/// Pages between two of which something is owed that are invalidated with them: an address more costs less than one more
/// invalidation, with its barriers, or interrupts.
const GAP: u64 = 2;

/// What a VM owes its TLBs. Takes memory with the first debt.
pub(crate) struct Ledger(AtomicPtr<Debts>);

struct Debts {
    /// How many are open.
    open: AtomicUsize,
    /// The number of the next.
    next: AtomicU64,
    /// Held to write down and strike out.
    writer: Lock<()>,
    /// What an invalidation of a page is to reach.
    entries: Entries,
    places: [Place; BOUND],
}

/// Where a debt is written down.
#[derive(Default)]
struct Place {
    /// Its number; 0 where there is none.
    number: AtomicU64,
    page: AtomicU64,
    new: AtomicU64,
}

/// A page under a VMID, in one word.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Page(u64);

impl Page {
    const GFN_BITS: u32 = 48;

    fn new(vmid: Vmid, gfn: Gfn) -> Self {
        Self(u64::from(vmid.0) << Self::GFN_BITS | gfn.get())
    }

    fn vmid(self) -> Vmid {
        Vmid((self.0 >> Self::GFN_BITS) as u16)
    }

    fn gfn(self) -> Gfn {
        Gfn::new(self.0 & ((1 << Self::GFN_BITS) - 1))
    }
}

impl Ledger {
    pub(crate) fn new() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    #[inline]
    fn debts(&self) -> Option<&Debts> {
        // Acquire, pairing with the release in `begin`.
        // SAFETY: null, or what `begin` has put there, which stays until this is dropped.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// The debts, to which one is to be added; `None` without memory.
    fn begin<F: Format>(&self) -> Option<&Debts> {
        if let Some(debts) = self.debts() {
            return Some(debts);
        }
        let entries = if breaks_blocks::<F>() { Entries::Leaves } else { Entries::LeavesOfAnySize };
        let fresh = try_box(Debts {
            open: AtomicUsize::new(0),
            next: AtomicU64::new(1),
            writer: Lock::new(()),
            entries,
            places: core::array::from_fn(|_| Place::default()),
        });
        let fresh = alloc::boxed::Box::into_raw(fresh.ok()?);
        let (release, relaxed) = (Ordering::Release, Ordering::Relaxed);
        if self.0.compare_exchange(null_mut(), fresh, release, relaxed).is_err() {
            // SAFETY: from a box, above, and nobody else has it.
            drop(unsafe { alloc::boxed::Box::from_raw(fresh) });
        }
        self.debts()
    }

    /// Whether something has been owed.
    #[inline]
    pub(crate) fn is_in_use(&self) -> bool {
        self.debts().is_some()
    }

    /// The number below which debts are paid by an invalidation that is issued after this; `None` where none is open.
    #[inline]
    pub(crate) fn due(&self) -> Option<u64> {
        self.debts().and_then(Debts::due)
    }

    /// What `scope` covers was invalidated under `vmid` after [`Ledger::due`] said `below`.
    #[cold]
    pub(crate) fn paid(&self, below: u64, vmid: Vmid, scope: &Scope, mmu: &dyn Mmu) {
        let Some(debts) = self.debts() else { return };
        let covers = |page: Page, _| {
            let gfn = page.gfn();
            page.vmid() == vmid
                && match scope {
                    Scope::All => true,
                    Scope::Range(span) => span.forgets_leaf(&(gfn..Gfn::new(gfn.get() + 1))),
                }
        };
        debts.strike_out(below, covers, mmu);
    }

    /// Pays what is owed of `gfns`, and of whatever is in frames `pfns`: those are about to be written.
    #[inline]
    pub(crate) fn pay_for(&self, gfns: &Range<Gfn>, pfns: &Range<Pfn>, mmu: &dyn Mmu) {
        if let Some(debts) = self.debts()
            && debts.open.load(Ordering::Acquire) != 0
        {
            let is_meant = |page: Page, new| gfns.contains(&page.gfn()) || pfns.contains(&new);
            debts.pay(u64::MAX, is_meant, mmu);
        }
    }

    /// Whether `page` is among those of which something is owed.
    fn has(&self, page: Page) -> bool {
        let is_among = |debts: &Debts| debts.open(u64::MAX).any(|(other, _)| other == page);
        self.debts().is_some_and(is_among)
    }

    /// Extends `gfns`, pages that are about to be invalidated under `vmid`, by those next to them of which something is
    /// owed.
    #[cold]
    fn add_neighbours(&self, vmid: Vmid, gfns: &mut Range<Gfn>) {
        let Some(debts) = self.debts() else { return };
        loop {
            let (start, end) = (gfns.start.get(), gfns.end.get());
            let is_next = |page: &Page| {
                let gfn = page.gfn().get();
                let is_beside = gfn < start || gfn >= end;
                page.vmid() == vmid && is_beside && gfn + 1 + GAP >= start && gfn <= end + GAP
            };
            let Some(page) = debts.open(u64::MAX).map(|(page, _)| page).find(is_next) else {
                return;
            };
            let gfn = page.gfn();
            *gfns = gfns.start.min(gfn)..gfns.end.max(Gfn::new(gfn.get() + 1));
        }
    }

    /// Pays what is owed of `page`.
    fn pay_page(&self, page: Page, mmu: &dyn Mmu) {
        if let Some(debts) = self.debts() {
            debts.pay(u64::MAX, |other, _| other == page, mmu);
        }
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        // Relaxed: whoever drops this has it to himself.
        let debts = self.0.load(Ordering::Relaxed);
        if !debts.is_null() {
            // SAFETY: from a box, in `begin`, and nobody else has it any more.
            drop(unsafe { alloc::boxed::Box::from_raw(debts) });
        }
    }
}

impl Debts {
    #[inline]
    fn due(&self) -> Option<u64> {
        // Acquire, pairing with [paid].
        if self.open.load(Ordering::Acquire) == 0 {
            return None;
        }
        // [due]
        Some(self.next.load(Ordering::Acquire))
    }

    /// The debts below a number, with the frame that the entry names by now.
    fn open(&self, below: u64) -> impl Iterator<Item = (Page, Pfn)> {
        let is_open = move |place: &&Place| {
            // Acquire, pairing with the release in `write_down`; and with [paid].
            let number = place.number.load(Ordering::Acquire);
            number != 0 && number < below
        };
        self.places.iter().filter(is_open).map(Place::debt)
    }

    /// Writes a debt down: its number, if there is room.
    fn write_down(&self, page: Page, new: Pfn, mmu: &dyn Mmu) -> Option<u64> {
        let _writer = self.writer.lock(mmu);
        let is_free = |place: &&Place| place.number.load(Ordering::Relaxed) == 0;
        let place = self.places.iter().find(is_free)?;
        let number = self.next.load(Ordering::Relaxed);
        place.page.store(page.0, Ordering::Relaxed);
        place.new.store(new.get(), Ordering::Relaxed);
        place.number.store(number, Ordering::Release);
        self.open.fetch_add(1, Ordering::Relaxed);
        // [owe]
        self.next.store(number + 1, Ordering::Release);
        Some(number)
    }

    fn strike_out(&self, below: u64, is_paid: impl Fn(Page, Pfn) -> bool, mmu: &dyn Mmu) {
        let _writer = self.writer.lock(mmu);
        for place in &self.places {
            let number = place.number.load(Ordering::Relaxed);
            let (page, new) = place.debt();
            if number != 0 && number < below && is_paid(page, new) {
                // [paid]
                place.number.store(0, Ordering::Release);
                self.open.fetch_sub(1, Ordering::Release);
            }
        }
    }

    /// Pays the debts below a number that `is_meant` says: by address, pages that follow each other together.
    #[cold]
    fn pay(&self, below: u64, is_meant: impl Fn(Page, Pfn) -> bool, mmu: &dyn Mmu) {
        let Some(due) = self.due() else { return };
        let below = below.min(due);
        let mut pages = [Page(0); BOUND];
        let mut count = 0;
        for (page, _) in self.open(below).filter(|&(page, new)| is_meant(page, new)) {
            pages[count] = page;
            count += 1;
        }
        let pages = &mut pages[..count];
        pages.sort_unstable();
        let mut issued = None;
        for run in pages.chunk_by(|page, next| next.0 - page.0 <= 1 + GAP) {
            let (first, last) = (run[0], run[run.len() - 1]);
            let gfns = first.gfn()..Gfn::new(last.gfn().get() + 1);
            let span = Span { gfns, stride: 1, entries: self.entries };
            let by_address = span.count() <= mmu.max_by_address();
            let scope = if by_address { Scope::Range(span) } else { Scope::All };
            mmu.charge(Op::TlbInvalidation);
            issued = Some(mmu.issue(first.vmid(), scope));
        }
        if let Some(token) = issued {
            mmu.complete(token);
            self.strike_out(below, is_meant, mmu);
        }
    }
}

impl Place {
    fn debt(&self) -> (Page, Pfn) {
        let page = Page(self.page.load(Ordering::Relaxed));
        (page, Pfn::new(self.new.load(Ordering::Relaxed)))
    }
}

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
