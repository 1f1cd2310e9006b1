//! Taking mappings away, in pieces between which the lock can be given up.

use std::ops::Range;

use mayfly_platform::address::{Gfn, Pfn};
use mayfly_platform::frames::WORDS;
use mayfly_platform::sync::Ordering;
use mayfly_platform::{Op, Platform};
use mayfly_stage2::{Entry, Ept, Format, Level, State};

use super::lock::Held;
use super::tables::{EMPTY, Tables, below};

/// KVM's `REMOVED_SPTE`: nobody puts anything in its place.
const FROZEN: Entry<Ept> = Entry::from_bits(1 << 3);

/// Pieces of 4 KiB are measured together, those of a table; and of this many tables one, since a look at the thread's
/// clock takes longer than many of them.
const MEASURED: u32 = 32;

/// Work under the lock, which is given up where others wait for it.
pub(super) struct Pieces<'a, 'b> {
    held: &'a mut Held<'b>,
    platform: &'a dyn Platform,
    /// Entries of 4 KiB that there have been.
    pages: u32,
    is_measured: bool,
}

impl<'a, 'b> Pieces<'a, 'b> {
    pub(super) fn begin(held: &'a mut Held<'b>, platform: &'a dyn Platform) -> Self {
        let mut pieces = Self { held, platform, pages: 0, is_measured: false };
        pieces.begin_piece();
        pieces
    }

    fn begin_piece(&mut self) {
        self.is_measured = true;
        self.platform.charge(Op::SliceBegin);
    }

    fn end_measured(&mut self) {
        if std::mem::take(&mut self.is_measured) {
            self.platform.charge(Op::SliceEnd);
        }
    }

    /// The end of a piece, in which an entry of `level` was zapped. If somebody waits for the lock, it is given up for
    /// a moment, after `flush`.
    fn end_piece(&mut self, level: Level, flush: impl FnOnce()) {
        let mut begins = level > Level::PAGE;
        if !begins {
            self.pages += 1;
            begins = self.pages.is_multiple_of(MEASURED * WORDS as u32);
        }
        let is_contended = self.held.is_contended();
        if is_contended {
            flush();
        }
        if is_contended || begins || self.pages.is_multiple_of(WORDS as u32) {
            self.end_measured();
        }
        if is_contended {
            self.held.yield_to_waiters();
        }
        if begins {
            self.begin_piece();
        }
    }
}

impl Drop for Pieces<'_, '_> {
    fn drop(&mut self) {
        self.end_measured();
    }
}

impl Tables {
    /// Zaps all of an invalid root, one entry of `level` at a time (`__tdp_mmu_zap_root`); what is above stays.
    pub(super) fn zap_root(
        &self,
        top: Pfn,
        level: Level,
        pieces: &mut Pieces<'_, '_>,
    ) -> anyhow::Result<()> {
        self.zap_table(top, Ept::TOP, level, pieces)
    }

    fn zap_table(
        &self,
        table: Pfn,
        at: Level,
        level: Level,
        pieces: &mut Pieces<'_, '_>,
    ) -> anyhow::Result<()> {
        for index in 0..WORDS {
            let entry = self.load(table, index);
            match entry.state(at) {
                State::Table(child) if at > level => {
                    self.zap_table(child, below(at)?, level, pieces)?;
                }
                State::Table(child) => {
                    self.word(table, index).store(EMPTY.bits(), Ordering::Release);
                    self.remove(child, below(at)?)?;
                    pieces.end_piece(at, || ());
                }
                State::Leaf => {
                    self.word(table, index).swap(EMPTY.bits(), Ordering::AcqRel);
                    pieces.end_piece(at, || ());
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Takes a table apart with all that is below it, which nobody can find any more (`handle_removed_pt`): freezes
    /// every entry, and frees the table.
    fn remove(&self, table: Pfn, at: Level) -> anyhow::Result<()> {
        for index in 0..WORDS {
            let word = self.word(table, index);
            let entry = Entry::<Ept>::from_bits(word.swap(FROZEN.bits(), Ordering::AcqRel));
            if let State::Table(child) = entry.state(at) {
                self.remove(child, below(at)?)?;
            }
        }
        self.free(table);
        Ok(())
    }

    /// Zaps the pages of `gfns`, one at a time, and keeps the tables (`tdp_mmu_zap_leafs`). `flush` invalidates the
    /// TLBs; the caller does so as well when this has returned.
    pub(super) fn zap_leaves(
        &self,
        top: Pfn,
        gfns: &Range<Gfn>,
        pieces: &mut Pieces<'_, '_>,
        flush: &dyn Fn(),
    ) -> anyhow::Result<()> {
        let mut gfn = gfns.start.get();
        while gfn < gfns.end.get() {
            let (mut table, mut at) = (top, Ept::TOP);
            let found = loop {
                let index = Self::index(at, Gfn::new(gfn));
                match self.load(table, index).state(at) {
                    State::Table(child) => (table, at) = (child, below(at)?),
                    State::Leaf => break Some(index),
                    _ => break None,
                }
            };
            let Some(first) = found else {
                gfn = (gfn / at.pages() + 1) * at.pages();
                continue;
            };
            let count = (WORDS - first).min((gfns.end.get() - gfn) as usize);
            for index in first..first + count {
                self.word(table, index).swap(EMPTY.bits(), Ordering::AcqRel);
                pieces.end_piece(at, flush);
            }
            gfn += count as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use mayfly_machine::Hardware;
    use mayfly_machine::walk::walk;
    use mayfly_platform::Host;
    use mayfly_stage2::Permissions;

    use super::*;
    use crate::before::tdp_mmu::lock::{FairLock, Waiting};
    use crate::slot_delete::watch::Watch;

    const FIRST: u64 = 1000;

    /// A root that maps three tables of pages and a part of a fourth, to as many frames that nobody has.
    fn mapped() -> (Arc<Hardware>, Tables, Pfn) {
        let hardware = Arc::new(Hardware::new(64).unwrap());
        let tables = Tables::new(Arc::new(Watch::new(hardware.clone(), 1)));
        let top = tables.allocate().unwrap();
        for table in 0..4 {
            let first = (FIRST + table * 512) / 512 * 512;
            let gfns = Gfn::new(first)..Gfn::new(first + 512);
            tables.map_run(top, gfns, Pfn::new(1 << 20)).unwrap();
        }
        (hardware, tables, top)
    }

    fn is_mapped(hardware: &Hardware, top: Pfn, gfn: u64) -> bool {
        walk::<Ept>(hardware.arena(), top, Gfn::new(gfn), Permissions::READ).is_ok()
    }

    fn lock() -> FairLock {
        FairLock::new(Arc::new(Host::new()), Waiting::Asleep)
    }

    #[test]
    fn a_root_that_is_zapped_by_any_passes_leaves_its_own_table_alone() {
        let all = [Level::PAGE, Level::MIB2, Level::GIB1, Level::GIB512];
        for first in 0..all.len() {
            let (hardware, tables, top) = mapped();
            assert!(is_mapped(&hardware, top, FIRST));
            let (lock, platform) = (lock(), Host::new());
            let mut held = lock.read();
            let mut pieces = Pieces::begin(&mut held, &platform);
            for &level in &all[first..] {
                tables.zap_root(top, level, &mut pieces).unwrap();
            }
            assert!(!is_mapped(&hardware, top, FIRST));
            assert_eq!(hardware.arena().in_use(), 1, "from {:?} on", all[first]);
        }
    }

    #[test]
    fn zapping_pages_spares_their_neighbours_and_the_tables() {
        let (hardware, tables, top) = mapped();
        let before = hardware.arena().in_use();
        let gfns = Gfn::new(FIRST)..Gfn::new(FIRST + 600);
        let (lock, platform, flushes) = (lock(), Host::new(), Cell::new(0));
        let mut held = lock.write();
        let mut pieces = Pieces::begin(&mut held, &platform);
        let flush = || flushes.set(flushes.get() + 1);
        tables.zap_leaves(top, &gfns, &mut pieces, &flush).unwrap();
        for gfn in [FIRST, FIRST + 23, FIRST + 24, FIRST + 599] {
            assert!(!is_mapped(&hardware, top, gfn), "{gfn}");
        }
        assert!(is_mapped(&hardware, top, FIRST - 1) && is_mapped(&hardware, top, FIRST + 600));
        assert_eq!((hardware.arena().in_use(), flushes.get()), (before, 0), "nobody waited");
    }
}
