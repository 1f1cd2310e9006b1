//! What guests may find in their memory.
//!
//! Every page of the slots' memory has one vCPU that writes it. It writes a word of its own: which page it is, and
//! which write to it. So whoever reads it can tell another page's memory (a translation that should have been
//! forgotten, a frame that was given to somebody else), and an older state of the right page (a frame that its contents
//! have left).
//!
//! Threads that change something say so before, and when it is done, by a number that is odd in between. Who reads such
//! a number before and after an access, finds the same, and even, knows that there was no change, and what must be
//! there:
//!
//! - a slot's number says where the slot is. An access there must reach memory; one where it is not must not.
//! - a page's `era` changes when its memory is replaced by other memory, which is zero. In one era a page holds the
//!   last write that was made in it, or a later one.
//! - a page's `away` changes when its memory is at other addresses, and comes back with what it holds.
//! - a page's `guard` changes when writing it is forbidden, and allowed again.
//!
//! In any case a page holds zero or a word of its own. Memory that moves to swap, or to another frame, is the same
//! memory: no number says anything about that.

use std::sync::atomic::{AtomicU64, Ordering};

use mayfly_memslot::{Gfn, Gpa, PAGE_SIZE};

/// Slots of [`SMALL`] pages, all of them in one table; then slots of 2 MiB.
pub(crate) const SLOTS: usize = SMALLS + HUGES;
pub(crate) const SMALLS: usize = 4;
pub(crate) const HUGES: usize = 2;
pub(crate) const SMALL: usize = 32;
pub(crate) const HUGE: usize = 512;
/// Pages of all slots' memory.
pub(crate) const PAGES: usize = SMALLS * SMALL + HUGES * HUGE;
/// Where a slot may be.
pub(crate) const PLACES: u64 = 2;

const MAGIC: u64 = 0x50a1;

/// How many pages a slot has.
pub(crate) fn pages_of(slot: usize) -> usize {
    if slot < SMALLS { SMALL } else { HUGE }
}

/// Number of the first page of a slot's memory. The huge ones come first, for the host's memory to be aligned.
pub(crate) fn first_page(slot: usize) -> usize {
    if slot < SMALLS { HUGES * HUGE + slot * SMALL } else { (slot - SMALLS) * HUGE }
}

/// Where place `place` of a slot is. That of a huge one is aligned, so that it can be mapped as a block, or not.
pub(crate) fn base(slot: usize, place: u64) -> Gpa {
    let gfn = if slot < SMALLS {
        (1 << 18) + (slot as u64 * PLACES + place) * SMALL as u64
    } else {
        (1 << 18) + 512 + ((slot - SMALLS) as u64 * PLACES + place) * 1024 + place
    };
    Gpa::new(gfn * PAGE_SIZE)
}

/// Write `count` to `page`, as it is in memory.
pub(crate) fn word(page: usize, count: u64) -> u64 {
    MAGIC << 48 | (page as u64) << 32 | count
}

/// Which write `word` is of those to `page`: 0 for memory that was not written.
pub(crate) fn count_in(page: usize, found: u64) -> u64 {
    let count = found & 0xffff_ffff;
    assert!(
        found == 0 || found == word(page, count),
        "page {page:#x} holds {found:#x}: it is not the page's"
    );
    count
}

/// A number that is odd while something changes.
#[derive(Debug, Default)]
pub(crate) struct Version(AtomicU64);

impl Version {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn step(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether there was no change since it was `before`.
    pub(crate) fn is_settled(&self, before: u64) -> bool {
        before.is_multiple_of(2) && self.get() == before
    }
}

#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) era: Version,
    pub(crate) away: Version,
    pub(crate) guard: Version,
    /// The last write that was begun.
    begun: AtomicU64,
    /// The last write that is known to have reached the memory of an era: the era above, the write below.
    done: AtomicU64,
}

impl Page {
    /// The number of the next write, for the page's only writer.
    pub(crate) fn begin(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The last write that may be in the page.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Write `count` is in the memory of `era`.
    pub(crate) fn reached(&self, era: u64, count: u64) {
        self.done.store(era << 32 | count, Ordering::Release);
    }

    /// The last write that is known to be in some era's memory, and in which.
    pub(crate) fn done(&self) -> (u64, u64) {
        let done = self.done.load(Ordering::Acquire);
        (done >> 32, done & 0xffff_ffff)
    }
}

/// Where a slot is, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Whereabouts(u64);

impl Whereabouts {
    /// Whether it is not just changing.
    fn is_settled(self) -> bool {
        self.0.is_multiple_of(2)
    }

    /// Its place, or the one that it is leaving.
    pub(crate) fn place(self) -> Option<u64> {
        (self.0 >> 1 & 3).checked_sub(1)
    }
}

#[derive(Debug)]
pub(crate) struct Book {
    pub(crate) pages: Vec<Page>,
    /// Bit 0: changing. Bits 1 and 2: the place, from 1 on. Above: a number.
    slots: [AtomicU64; SLOTS],
}

impl Book {
    pub(crate) fn new() -> Self {
        Self { pages: (0..PAGES).map(|_| Page::default()).collect(), slots: Default::default() }
    }

    pub(crate) fn slot(&self, slot: usize) -> Whereabouts {
        Whereabouts(self.slots[slot].load(Ordering::Acquire))
    }

    /// Changes a slot, which then is at `place`.
    pub(crate) fn change_slot(&self, slot: usize, place: Option<u64>, change: impl FnOnce()) {
        let before = self.slots[slot].fetch_or(1, Ordering::AcqRel);
        change();
        let number = (before >> 3) + 1;
        self.slots[slot]
            .store(number << 3 | place.map_or(0, |place| place + 1) << 1, Ordering::Release);
    }
}

/// What is known at one moment about an access.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    slot: Whereabouts,
    era: u64,
    away: u64,
    guard: u64,
    done: (u64, u64),
}

/// An access to a page of a slot, which may be at `place`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) slot: usize,
    pub(crate) place: u64,
    /// Number of the page within the slot.
    pub(crate) at: usize,
}

impl Target {
    pub(crate) fn gpa(self) -> Gpa {
        Gpa::new(base(self.slot, self.place).get() + self.at as u64 * PAGE_SIZE)
    }

    pub(crate) fn gfn(self) -> Gfn {
        self.gpa().gfn()
    }

    /// Number of the page among all.
    pub(crate) fn page(self) -> usize {
        first_page(self.slot) + self.at
    }
}

impl Book {
    /// Before the access.
    pub(crate) fn before(&self, target: Target) -> Before {
        let page = &self.pages[target.page()];
        let slot = self.slot(target.slot);
        let (era, away, guard) = (page.era.get(), page.away.get(), page.guard.get());
        Before { slot, era, away, guard, done: page.done() }
    }

    /// After an access that reached memory. Returns whether the slot was there all the time.
    fn reached_memory(&self, target: Target, before: Before) -> bool {
        let is_settled = before.slot.is_settled() && self.slot(target.slot) == before.slot;
        let is_there = before.slot.place() == Some(target.place);
        assert!(
            !is_settled || is_there,
            "memory is used where no slot is: {target:x?}, {before:x?}"
        );
        is_settled
    }

    /// After `found` was read. Returns whether it was certain what must be there.
    pub(crate) fn check_read(&self, target: Target, before: Before, found: u64) -> bool {
        let page = &self.pages[target.page()];
        let count = count_in(target.page(), found);
        assert!(count <= page.begun(), "{target:x?} holds {found:#x}, which nobody wrote");
        let slot_settled = self.reached_memory(target, before);
        let era_settled = page.era.is_settled(before.era);
        if era_settled {
            let (era, done) = before.done;
            let is_current =
                if era == before.era { count >= done } else { count == 0 || count > done };
            assert!(
                is_current,
                "{target:x?} holds write {count}, {before:x?}: it is not the last state"
            );
        }
        slot_settled && era_settled
    }

    /// After write `count` was made.
    pub(crate) fn check_write(&self, target: Target, before: Before, count: u64) {
        let page = &self.pages[target.page()];
        if self.reached_memory(target, before) && page.era.is_settled(before.era) {
            page.reached(before.era, count);
        }
    }

    /// After an access came out as a device's.
    pub(crate) fn check_exit(&self, target: Target, before: Before) {
        let is_there = before.slot.is_settled() && before.slot.place() == Some(target.place);
        assert!(
            !is_there || self.slot(target.slot) != before.slot,
            "no memory where a slot is: {target:x?}"
        );
    }

    /// After an access found no host memory.
    pub(crate) fn check_unmapped(&self, target: Target, before: Before) {
        let page = &self.pages[target.page()];
        let is_settled = page.era.is_settled(before.era) && page.away.is_settled(before.away);
        assert!(!is_settled, "no host memory where some is mapped: {target:x?}");
    }

    /// After a write found host memory that is not to be written.
    pub(crate) fn check_forbidden(&self, target: Target, before: Before) {
        let is_settled = self.pages[target.page()].guard.is_settled(before.guard);
        assert!(!is_settled, "host memory that may be written may not: {target:x?}");
    }
}
