//! The ledger: the record of what a VM owes its TLBs ([`owed`](super)).

use core::ops::Range;
use core::ptr::null_mut;

use mayfly_platform::address::{Gfn, Pfn};
use mayfly_platform::lock::Lock;
use mayfly_platform::memory::try_box;
use mayfly_platform::sync::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use mayfly_platform::tlb::{Entries, Scope, Span, Vmid};
use mayfly_platform::{Mmu, Op};

use crate::Format;
use crate::format::breaks_blocks;

/// Debts that a VM may have: pages in a root each, and so the old frames that its host keeps for it.
pub(crate) const BOUND: usize = if cfg!(any(mayfly_loom, mayfly_shuttle)) { 2 } else { 64 };

/// Pages between two of which something is owed that are invalidated with them: an address more costs less than one
/// more invalidation, with its barriers, or interrupts.
const GAP: u64 = 2;

/// What a VM owes its TLBs. Takes memory with the first debt.
pub(crate) struct Ledger(AtomicPtr<Debts>);

pub(super) struct Debts {
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
pub(super) struct Page(u64);

impl Page {
    const GFN_BITS: u32 = 48;

    pub(super) fn new(vmid: Vmid, gfn: Gfn) -> Self {
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
    pub(super) fn debts(&self) -> Option<&Debts> {
        // Acquire, pairing with the release in `begin`.
        // SAFETY: null, or what `begin` has put there, which stays until this is dropped.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// The debts, to which one is to be added; `None` without memory.
    pub(super) fn begin<F: Format>(&self) -> Option<&Debts> {
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
            // SAFETY: from a box, above, and no other CPU has it.
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
    pub(super) fn has(&self, page: Page) -> bool {
        let is_among = |debts: &Debts| debts.open(u64::MAX).any(|(other, _)| other == page);
        self.debts().is_some_and(is_among)
    }

    /// Extends `gfns`, pages that are about to be invalidated under `vmid`, by those next to them of which something is
    /// owed.
    #[cold]
    pub(super) fn add_neighbours(&self, vmid: Vmid, gfns: &mut Range<Gfn>) {
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
    pub(super) fn pay_page(&self, page: Page, mmu: &dyn Mmu) {
        if let Some(debts) = self.debts() {
            debts.pay(u64::MAX, |other, _| other == page, mmu);
        }
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        // Relaxed: the CPU that drops this is the only one that has it.
        let debts = self.0.load(Ordering::Relaxed);
        if !debts.is_null() {
            // SAFETY: from a box, in `begin`, and no other CPU has it any more.
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
    pub(super) fn open(&self, below: u64) -> impl Iterator<Item = (Page, Pfn)> {
        let is_open = move |place: &&Place| {
            // Acquire, pairing with the release in `write_down`; and with [paid].
            let number = place.number.load(Ordering::Acquire);
            number != 0 && number < below
        };
        self.places.iter().filter(is_open).map(Place::debt)
    }

    /// Writes a debt down: its number, if there is room.
    pub(super) fn write_down(&self, page: Page, new: Pfn, mmu: &dyn Mmu) -> Option<u64> {
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
    pub(super) fn pay(&self, below: u64, is_meant: impl Fn(Page, Pfn) -> bool, mmu: &dyn Mmu) {
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

#[cfg(all(test, mayfly_loom))]
#[path = "../../tests/model/mod.rs"]
#[allow(dead_code, unused_imports, reason = "this is about debts, and models have more")]
mod model;

/// Of [owe], [due] and [paid] alone: no party executes a fence, as callers do that look for the VMID.
#[cfg(all(test, mayfly_loom))]
mod tests {
    use alloc::sync::Arc;

    use loom::cell::UnsafeCell;
    use loom::thread;

    use super::model::{NoTlb, Tiny, Vm};
    use super::*;
    use crate::Ept;

    const VMID: Vmid = Vmid(1);

    struct Machine {
        mmu: Arc<dyn Mmu>,
        ledger: Ledger,
        /// The entry of the page: 0 is the old frame, 1 the new.
        entry: AtomicU64,
        /// The old frame.
        old: UnsafeCell<u64>,
    }

    // SAFETY: loom checks every access to the cell.
    unsafe impl Sync for Machine {}
    // SAFETY: as above.
    unsafe impl Send for Machine {}

    impl Machine {
        fn new() -> Arc<Self> {
            let mmu: Arc<dyn Mmu> = Vm::<Tiny<false>, _>::new(0, NoTlb).world;
            let (ledger, entry) = (Ledger::new(), AtomicU64::new(0));
            assert!(ledger.begin::<Ept>().is_some());
            Arc::new(Self { mmu, ledger, entry, old: UnsafeCell::new(0) })
        }

        fn owe(&self) {
            self.entry.store(1, Ordering::Relaxed);
            let page = Page::new(VMID, Gfn::new(5));
            let debts = self.ledger.debts().unwrap();
            assert!(debts.write_down(page, Pfn::new(1), &*self.mmu).is_some());
        }

        /// An invalidation that finds something due; what the CPU has of the entry when it issues that.
        fn invalidate(&self) -> u64 {
            let due = self.ledger.due();
            let found = self.entry.load(Ordering::Relaxed);
            // Other CPUs may access the old frame until it is complete.
            // SAFETY: loom checks it.
            self.old.with(|old| assert_eq!(unsafe { *old }, 0));
            if let Some(below) = due {
                self.ledger.paid(below, VMID, &Scope::All, &*self.mmu);
            }
            found
        }

        fn reuse(&self) {
            // SAFETY: loom checks it.
            self.old.with_mut(|old| unsafe { *old = 1 });
        }

        fn is_paid(&self) -> bool {
            self.ledger.debts().unwrap().open(u64::MAX).next().is_none()
        }
    }

    #[test]
    fn a_debt_is_struck_out_by_a_cpu_that_found_the_entry_changed() {
        loom::model(|| {
            let machine = Machine::new();
            let owes = {
                let machine = Arc::clone(&machine);
                thread::spawn(move || machine.owe())
            };
            let found = machine.invalidate();
            owes.join().unwrap();
            assert!(!machine.is_paid() || found == 1, "it was paid before the change");
        });
    }

    /// `is_paid` is how a party looks.
    fn the_old_frame_is_accessed_no_more(is_paid: fn(&Machine) -> bool) {
        loom::model(move || {
            let machine = Machine::new();
            machine.owe();
            // In a thread of its own, as loom goes on with this one first: it looks when all has been stored.
            let looks = {
                let machine = Arc::clone(&machine);
                thread::spawn(move || {
                    if is_paid(&machine) {
                        machine.reuse();
                    }
                })
            };
            assert_eq!(machine.invalidate(), 1);
            looks.join().unwrap();
        });
    }

    #[test]
    fn the_old_frame_is_accessed_no_more_when_the_debt_is_open_no_more() {
        the_old_frame_is_accessed_no_more(Machine::is_paid);
    }

    #[test]
    fn the_old_frame_is_accessed_no_more_when_nothing_is_due() {
        the_old_frame_is_accessed_no_more(|machine| machine.ledger.due().is_none());
    }
}
