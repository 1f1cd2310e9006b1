//! Tables of one root in Intel's format, in the machine's memory.
//!
//! Entries change by compare-exchange. A table that is taken out of the tree is freed at the end: a vCPU may be walking
//! it without a lock.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use mayfly_machine::Hardware;
use mayfly_platform::address::{Gfn, Hpa, PAGE_SHIFT, Pfn};
use mayfly_platform::frames::{Frames, WORDS};
use mayfly_platform::sync::{AtomicU64, Ordering};
use mayfly_platform::tlb::{Scope, Tlb, Vmid};
use mayfly_stage2::{Entry, Ept, Format, Leaf, Level, Permissions, State};
use mayfly_vm::Base;

use crate::start::Mapped;

/// What makes an entry writable (`PT_WRITABLE_MASK`).
const WRITE: u64 = 1 << 1;

/// An entry whose table is out of the tree (`FROZEN_SPTE`).
const REMOVED: u64 = 3 << 3;

/// The one root's.
const VMID: Vmid = Vmid(1);

pub(super) struct Tables {
    hardware: Arc<Hardware>,
    top: Pfn,
    /// All that were allocated: also those that are out of the tree.
    allocated: Mutex<Vec<Pfn>>,
}

/// An entry, and where it is.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    word: &'a AtomicU64,
    entry: Entry<Ept>,
    pub(super) level: Level,
}

impl At<'_> {
    fn replace(self, bits: u64) -> bool {
        let old = self.entry.bits();
        self.word.compare_exchange(old, bits, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    pub(super) fn is_block(self) -> bool {
        self.level > Level::PAGE && self.entry.state(self.level) == State::Leaf
    }

    fn is_page(self) -> bool {
        self.level == Level::PAGE && self.entry.state(self.level) == State::Leaf
    }

    fn is_writable(self) -> bool {
        self.entry.bits() & WRITE != 0
    }
}

impl Tables {
    pub(super) fn new(hardware: &Arc<Hardware>) -> anyhow::Result<Self> {
        let top = hardware.allocate(0).context("a root")?;
        let allocated = Mutex::new(vec![top]);
        Ok(Self { hardware: Arc::clone(hardware), top, allocated })
    }

    /// What a vCPU runs on.
    pub(super) fn base(&self) -> Base {
        Base { top: self.top, vmid: VMID, flush: false }
    }

    /// Has all TLBs forget all of it (`kvm_flush_remote_tlbs`).
    pub(super) fn flush(&self) {
        self.hardware.complete(self.hardware.issue(VMID, Scope::All));
    }

    /// What they map.
    pub(super) fn mapped(&self) -> Mapped {
        Mapped::of::<Ept>(self.hardware.arena(), [self.top])
    }

    fn allocated(&self) -> MutexGuard<'_, Vec<Pfn>> {
        self.allocated.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn allocate(&self) -> anyhow::Result<Pfn> {
        let table = self.hardware.allocate(0).context("a table")?;
        self.allocated().push(table);
        Ok(table)
    }

    fn words(&self, table: Pfn) -> impl Iterator<Item = &AtomicU64> {
        self.hardware.arena().words(table)
    }

    fn at(&self, table: Pfn, level: Level, gfn: Gfn) -> At<'_> {
        let index = gfn.get() / level.pages() % WORDS as u64;
        let word = self.hardware.arena().word(Hpa::new((table.get() << PAGE_SHIFT) + 8 * index));
        At { word, entry: Entry::from_bits(word.load(Ordering::Acquire)), level }
    }

    /// The entry of `level` for `gfn`, or that above it which leads no further.
    pub(super) fn find(&self, gfn: Gfn, level: Level) -> At<'_> {
        let mut at = self.at(self.top, Ept::TOP, gfn);
        while let (State::Table(table), Some(below)) = (at.entry.state(at.level), at.level.below())
            && at.level > level
        {
            at = self.at(table, below, gfn);
        }
        at
    }

    /// The entry of `level` for `gfn`, with the tables above it made, empty, where there are none.
    fn make(&self, gfn: Gfn, level: Level) -> anyhow::Result<At<'_>> {
        loop {
            let at = self.find(gfn, level);
            if at.level == level {
                return Ok(at);
            }
            let table = self.allocate()?;
            // Another caller may have put one there.
            at.replace(Entry::<Ept>::table(table).bits());
        }
    }

    /// Maps a leaf of `level`, in the place of whatever is there; a table that was there is out of the tree.
    pub(super) fn map(&self, gfn: Gfn, level: Level, pfn: Pfn) -> anyhow::Result<()> {
        let at = self.make(gfn, level)?;
        let leaf = Entry::<Ept>::leaf(level, &Leaf::new(pfn, Permissions::all()));
        at.word.swap(leaf.bits(), Ordering::AcqRel);
        Ok(())
    }

    /// Makes the block of 2 MiB in `at` a table of its pages, as writable as it is (`tdp_mmu_split_huge_page`).
    pub(super) fn split(&self, at: At<'_>) -> anyhow::Result<()> {
        let table = self.allocate()?;
        let block = at.entry.to_leaf(at.level);
        for (word, page) in self.words(table).zip(0..) {
            let pfn = Pfn::new(block.pfn.get() + page);
            let page = Entry::<Ept>::leaf(Level::PAGE, &Leaf { pfn, ..block });
            word.store(page.bits(), Ordering::Relaxed);
        }
        // Another caller may have split it.
        at.replace(Entry::<Ept>::table(table).bits());
        Ok(())
    }

    /// Puts an empty table in the place of a block (`drop_large_spte`).
    pub(super) fn drop_block(&self, at: At<'_>) -> anyhow::Result<()> {
        let table = self.allocate()?;
        at.word.store(Entry::<Ept>::table(table).bits(), Ordering::Release);
        Ok(())
    }

    /// Takes the right to write from the leaf of `gfn`, whatever its size. Returns whether it had it.
    pub(super) fn protect(&self, gfn: Gfn) -> bool {
        loop {
            let at = self.find(gfn, Level::PAGE);
            let is_leaf = at.is_page() || at.is_block();
            if !is_leaf || !at.is_writable() {
                return false;
            }
            if at.replace(at.entry.bits() & !WRITE) {
                return true;
            }
        }
    }

    /// Takes the right to write from all pages of the table below the entry of 2 MiB for `gfn`. Returns whether any had
    /// it.
    pub(super) fn protect_table(&self, gfn: Gfn) -> bool {
        let State::Table(table) = self.find(gfn, Level::MIB2).entry.state(Level::MIB2) else {
            return self.protect(gfn);
        };
        let mut any = false;
        for word in self.words(table) {
            // Hardware may note an access meanwhile (`tdp_mmu_set_spte_atomic`).
            while let bits = word.load(Ordering::Relaxed)
                && bits & WRITE != 0
            {
                let (new, order) = (bits & !WRITE, Ordering::AcqRel);
                any = true;
                if word.compare_exchange(bits, new, order, Ordering::Relaxed).is_ok() {
                    break;
                }
            }
        }
        any
    }

    /// Takes the right to write from those pages that have a bit in `bits`, of 64 from `gfn` on. Returns whether any had
    /// it (`clear_dirty_pt_masked`, which walks to their table once).
    pub(super) fn protect_those(&self, gfn: Gfn, mut bits: u64) -> bool {
        let above = self.find(gfn, Level::MIB2);
        let first = gfn.get() % WORDS as u64;
        let table = match above.entry.state(above.level) {
            State::Table(table) if first + 64 <= WORDS as u64 => Some(table),
            _ => None,
        };
        let mut any = false;
        while bits != 0 {
            let page = u64::from(bits.trailing_zeros());
            any |= match table {
                Some(table) => loop {
                    let at = self.at(table, Level::PAGE, Gfn::new(gfn.get() + page));
                    if !at.is_page() || !at.is_writable() {
                        break false;
                    }
                    if at.replace(at.entry.bits() & !WRITE) {
                        break true;
                    }
                },
                None => self.protect(Gfn::new(gfn.get() + page)),
            };
            bits &= bits - 1;
        }
        any
    }

    /// Makes the page `gfn` writable, without a lock (`fast_page_fault`). Returns whether the access can be made again.
    pub(super) fn allow(&self, gfn: Gfn) -> bool {
        loop {
            let at = self.find(gfn, Level::PAGE);
            if !at.is_page() {
                return false;
            }
            if at.is_writable() || at.replace(at.entry.bits() | WRITE) {
                return true;
            }
        }
    }

    /// Puts the block of 2 MiB of `gfn`, from frame `pfn` on, in the place of the table of its pages, each of whose
    /// entries is removed (`handle_removed_pt`). Returns whether there was one.
    pub(super) fn recover(&self, gfn: Gfn, pfn: Pfn) -> bool {
        let at = self.find(gfn, Level::MIB2);
        let State::Table(table) = at.entry.state(at.level) else { return false };
        let leaf = Entry::<Ept>::leaf(Level::MIB2, &Leaf::new(pfn, Permissions::all()));
        if at.level != Level::MIB2 || !at.replace(leaf.bits()) {
            return false;
        }
        for word in self.words(table) {
            word.swap(REMOVED, Ordering::AcqRel);
        }
        true
    }

    /// Maps nothing at page `gfn` any more.
    pub(super) fn zap_page(&self, gfn: Gfn) {
        let at = self.find(gfn, Level::PAGE);
        if at.is_page() {
            at.word.store(0, Ordering::Release);
        }
    }
}

impl Drop for Tables {
    fn drop(&mut self) {
        for table in self.allocated().drain(..) {
            // SAFETY: it was allocated here, and no vCPU runs on it any more.
            unsafe { self.hardware.free(table, 0) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_writable(tables: &Tables, page: u64) -> bool {
        tables.find(Gfn::new(page), Level::PAGE).is_writable()
    }

    #[test]
    fn a_block_is_split_protected_written_and_whole_again() {
        let hardware = Arc::new(Hardware::new(1 << 14).unwrap());
        let before = hardware.arena().in_use();
        let tables = Tables::new(&hardware).unwrap();
        tables.map(Gfn::new(0), Level::MIB2, Pfn::new(512)).unwrap();
        let frames = tables.mapped().tables;
        assert!(!tables.allow(Gfn::new(3)), "no page");
        tables.split(tables.find(Gfn::new(0), Level::PAGE)).unwrap();
        assert!(is_writable(&tables, 3), "as the block");
        assert!(tables.protect_table(Gfn::new(0)) && !tables.protect_table(Gfn::new(0)));
        assert!(!is_writable(&tables, 3) && tables.allow(Gfn::new(3)) && is_writable(&tables, 3));
        assert!(!tables.protect_those(Gfn::new(64), 1 << 3));
        // Of which some are in the next table, if there were one.
        assert!(tables.allow(Gfn::new(511)) && tables.protect_those(Gfn::new(500), !0));
        assert!(!is_writable(&tables, 511));
        assert!(tables.protect_those(Gfn::new(0), 1 << 3 | 1 << 4) && !is_writable(&tables, 3));
        assert_eq!(tables.mapped().tables, frames + 1);
        assert!(tables.recover(Gfn::new(0), Pfn::new(512)));
        assert!(!tables.recover(Gfn::new(0), Pfn::new(512)), "it is a block");
        assert!(is_writable(&tables, 3) && tables.mapped().tables == frames);

        tables.drop_block(tables.find(Gfn::new(0), Level::PAGE)).unwrap();
        tables.map(Gfn::new(5), Level::PAGE, Pfn::new(517)).unwrap();
        assert!(is_writable(&tables, 5) && !is_writable(&tables, 6));
        tables.zap_page(Gfn::new(5));
        assert!(!tables.find(Gfn::new(5), Level::PAGE).is_page());
        drop(tables);
        assert_eq!(hardware.arena().in_use(), before);
    }
}
