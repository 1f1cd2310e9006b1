//! Zapping: taking mappings away.

use core::ops::Range;

use mayfly_platform::Op;
use mayfly_platform::address::{Gfn, Pfn};

use crate::flush::{Changing, Flush};
use crate::graveyard;
use crate::level::below_of;
use crate::prune;
use crate::range::{At, Budget, Run, Slice, Visitor};
use crate::root::Root;
use crate::sequence::Announcement;
use crate::{Entry, Format, Leaf, Level, Role, Stage2};

/// What becomes of tables that have nothing left in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tables {
    /// They are taken out and freed: nothing is going to be mapped here soon. Where too many await their readers, the
    /// reclaimer does so later.
    Free,
    /// They stay: what is mapped here is about to come back.
    Keep,
}

impl<F: Format> Stage2<F> {
    /// Zaps `gfns` in every root, slice by slice: every page and block that maps something of the range, blocks as a
    /// whole. When this returns no CPU uses what was mapped there.
    ///
    /// Until `announcement` ends no fault installs anything of the range again.
    ///
    /// Waits for TLBs, and for entries that other CPUs are changing; not for readers. Where too many tables await their
    /// readers, further tables are emptied and stay, and the [`Reclaimer`](crate::Reclaimer) takes them out later.
    ///
    /// # Panics
    ///
    /// If `announcement` is not [of all of `gfns`](Stage2::is_announced).
    pub fn zap(&self, announcement: &Announcement, gfns: Range<Gfn>, tables: Tables, slice: Slice) {
        self.zap_in(None, announcement, gfns, tables, slice);
    }

    /// As [`Stage2::zap`], in the roots of `role` alone.
    ///
    /// # Panics
    ///
    /// As [`Stage2::zap`].
    pub fn zap_role(
        &self,
        role: Role,
        announcement: &Announcement,
        gfns: Range<Gfn>,
        tables: Tables,
        slice: Slice,
    ) {
        self.zap_in(Some(role), announcement, gfns, tables, slice);
    }

    fn zap_in(
        &self,
        role: Option<Role>,
        announcement: &Announcement,
        gfns: Range<Gfn>,
        tables: Tables,
        slice: Slice,
    ) {
        self.check_announced(announcement, &gfns);
        self.in_slices_of(role, gfns, |root, left| {
            let from = left.start;
            let zapped = root.zap_slice(left, tables, slice, None);
            if zapped.hanging {
                self.reclaimer.leave_hanging(root, &(from..left.start));
            }
            zapped.done
        });
    }

    /// As [`Stage2::zap`] with [`Tables::Keep`]. `each` is told of every leaf, when no CPU uses it any more: a frame
    /// that is then cleaned out of the caches does not get into them again.
    ///
    /// # Panics
    ///
    /// As [`Stage2::zap`].
    pub fn zap_each(
        &self,
        announcement: &Announcement,
        gfns: Range<Gfn>,
        slice: Slice,
        mut each: impl FnMut(Gfn, Level, Leaf),
    ) {
        self.check_announced(announcement, &gfns);
        self.in_slices(gfns, |root, left| {
            let mut told = Told::new();
            let zapped = root.zap_slice(left, Tables::Keep, slice, Some(&mut told));
            told.leaves().for_each(|(gfn, level, leaf)| each(gfn, level, leaf));
            zapped.done
        });
    }
}

impl<F: Format> Root<F> {
    /// Zaps what is left of `range`, one slice of it: every page and block that maps something of it, blocks as a
    /// whole. The TLBs have forgotten what was zapped when this returns.
    ///
    /// The caller has been shown the [`Announcement`] by which no fault installs anything of the
    /// range meanwhile.
    ///
    /// `told` gets every leaf, where tables are kept; the slice ends when it is full.
    pub(crate) fn zap_slice(
        &self,
        range: &mut Range<Gfn>,
        tables: Tables,
        slice: Slice,
        told: Option<&mut Told>,
    ) -> Zapped {
        let space = self.space();
        let section = space.srcu.read_lock();
        let (changing, from) = (Changing::begin(self), range.start);
        let mut zap =
            Zap { tables, flush: Flush::new(), entries: 0, kept: 0, hanging: false, told };
        let done = self.visit(range, &mut Budget::new(slice, self.mmu()), &mut zap);
        changing.finish(zap.flush, from..range.start);
        self.charge_entries(zap.entries);
        if zap.kept > 0 {
            self.mmu().charge(Op::TablesKept(zap.kept));
        }
        drop(section);
        space.graveyard.collect(&space.tables, &space.srcu);
        // Where readers may still be reading them.
        self.note_buried();
        Zapped { done, hanging: zap.hanging }
    }

    /// Zaps a block for the sake of a part of it. What is beside that may be mapped again at once, by pages, and
    /// operations there may come and go; so the TLBs forget the block before anybody finds the entry empty.
    pub(crate) fn zap_block(&self, at: &At<'_, F>) -> bool {
        self.break_and_make(at, Entry::EMPTY)
    }
}

/// What a slice came to.
pub(crate) struct Zapped {
    /// Nothing is left of the range.
    pub(crate) done: bool,
    /// Tables that should have been taken out were only emptied.
    pub(crate) hanging: bool,
}

/// Leaves that were found in a slice, to be told of when it is over: those that were zapped, when no CPU uses them any
/// more.
pub(crate) struct Told {
    leaves: [Option<(Gfn, Level, Leaf)>; Self::ROOM],
    count: usize,
}

impl Told {
    const ROOM: usize = 64;

    pub(crate) fn new() -> Self {
        Self { leaves: [None; Self::ROOM], count: 0 }
    }

    pub(crate) fn leaves(&self) -> impl Iterator<Item = (Gfn, Level, Leaf)> {
        self.leaves.iter().map_while(|leaf| *leaf)
    }

    /// Whether there is room for no more.
    pub(crate) fn is_full(&self) -> bool {
        self.count == Self::ROOM
    }

    pub(crate) fn add(&mut self, gfn: Gfn, level: Level, leaf: Leaf) {
        self.leaves[self.count] = Some((gfn, level, leaf));
        self.count += 1;
    }
}

struct Zap<'a> {
    tables: Tables,
    flush: Flush,
    entries: u64,
    /// Tables left empty.
    kept: u64,
    /// Some of them because there was no room in the graveyard.
    hanging: bool,
    told: Option<&'a mut Told>,
}

impl<F: Format> Visitor<F> for Zap<'_> {
    fn leaf(&mut self, root: &Root<F>, at: &At<'_, F>) -> bool {
        if at.whole {
            if !at.cell.replace(at.entry, Entry::EMPTY) {
                return false;
            }
            self.flush.add(at.gfn, at.level);
        } else if !root.zap_block(at) {
            return false;
        }
        self.entries += 1;
        if let Some(told) = &mut self.told {
            told.add(at.gfn, at.level, at.entry.to_leaf(at.level));
        }
        true
    }

    fn leaves(&mut self, run: &Run<'_>) -> u32 {
        if self.told.is_some() {
            return 0;
        }
        let count = self.flush.empty_run::<F>(run, run.count);
        self.entries += u64::from(count);
        count
    }

    fn is_full(&self) -> bool {
        self.told.as_ref().is_some_and(|told| told.is_full())
    }

    /// Takes a table out with all that is below it; up to those that stand for 1 GiB, so that a slice has no more than
    /// the entries of one table to go through at a time. Larger ones stay, empty, until their root goes.
    fn table(&mut self, root: &Root<F>, at: &At<'_, F>, table: Pfn) -> Option<u32> {
        if at.level > prune::LARGEST {
            return None;
        }
        if self.tables == Tables::Keep {
            self.kept += 1;
            return None;
        }
        let dead = root.space().graveyard.count() + self.flush.dead();
        if dead + prune::tables_below(at.level) > graveyard::BOUND {
            self.kept += 1;
            self.hanging = true;
            return None;
        }
        if !at.cell.replace(at.entry, Entry::EMPTY) {
            return None;
        }
        self.entries += 1;
        self.flush.add_table(at.gfn, at.level);
        Some(root.dismantle(table, below_of(at.level), &mut self.flush))
    }
}
