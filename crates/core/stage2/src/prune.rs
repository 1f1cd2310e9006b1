//! Taking out tables that were emptied and left hanging.
//!
//! A zap runs inside an invalidation, where no call may wait for readers: a reader may itself be waiting for the
//! invalidation to end, for example to create a slot. So where too many tables await their readers already
//! ([`graveyard`](crate::graveyard)), a zap empties tables, and leaves them where they are. It tells the reclaimer the
//! range, with a reference to the root. When there is room again, the reclaimer announces an invalidation of the range
//! for a slice, and takes out the tables that are empty then. Tables in which something was mapped meanwhile stay.
//!
//! Under the announcement an empty table stays empty: only a fault fills an empty entry, and a fault asks whether it
//! may when it has frozen the entry (`sequence`: \[install\], \[announce\]). The reclaimer waits for a fault that has
//! frozen an entry before.
//!
//! On the same list are the roots of VMs whose buried tables no other caller would free ([`buried`](crate::buried)).
//! Their range is empty, and they stay on the list until the graveyard is empty.
//!
//! No call waits for another one here: neither the reclaimer, which looks again when a reader has left, nor a caller
//! that tells it.

use core::ops::{ControlFlow, Range};

use mayfly_platform::address::{Gfn, Pfn};
use mayfly_platform::frames::WORDS;
use mayfly_platform::sync::Ordering;

use crate::flush::{Changing, Flush};
use crate::graveyard::BOUND;
use crate::level::below_of;
use crate::range::{At, Budget, Slice, Visitor};
use crate::reclaim::{Reclaimed, Reclaimer};
use crate::root::{Root, RootRef};
use crate::{Entry, Format, Level, State};

/// The largest entries whose tables are taken out together; with what hangs there of smaller ones.
pub(crate) const LARGEST: Level = Level::GIB1;

/// No frames, to which any may be added.
pub(crate) const NOTHING: Range<Gfn> = Gfn::new(u64::MAX)..Gfn::new(0);

/// The most tables that an entry of `level`, at most [`LARGEST`], leads to.
pub(crate) fn tables_below(level: Level) -> usize {
    if level == Level::MIB2 { 1 } else { 1 + WORDS }
}

impl<F: Format> Reclaimer<F> {
    /// Takes out the tables that are empty of some root where such were left, a slice of them.
    pub(crate) fn prune(&self, slice: Slice) -> Reclaimed {
        let mut waiting: Option<RootRef<F>> = None;
        let mut gone = Reclaimed::All;
        loop {
            let Some((root, mut gfns)) = self.next_hanging() else { return gone };
            if root.is_retired() {
                // Its tables go with it, now that it is not held from here, and what its VM has buried before it.
                gone = Reclaimed::More;
                waiting = waiting.filter(|first| !first.is(&root));
                continue;
            }
            let space = root.space();
            let is_all_freed = self.collect(space);
            if gfns.is_empty() && is_all_freed {
                waiting = waiting.filter(|first| !first.is(&root));
                continue;
            }
            if gfns.is_empty() || space.graveyard.count() > BOUND / 2 {
                let again = waiting.as_ref().is_some_and(|first| first.is(&root));
                self.put_back(&root, &gfns);
                if again || self.is_only_hanging(&root) {
                    return Reclaimed::Waits;
                }
                waiting.get_or_insert(root);
                continue;
            }
            let announced = space.sequence.begin(|announce| announce(gfns.clone()), root.mmu());
            let done = root.prune_slice(&mut gfns, slice);
            space.sequence.end(announced, root.mmu());
            let left = if done { NOTHING } else { gfns };
            self.put_back(&root, &left);
            return Reclaimed::More;
        }
    }

    /// Takes over to take out the empty tables of `gfns` in `root`, when there is room for them. Does not wait.
    pub(crate) fn leave_hanging(&self, root: &RootRef<F>, gfns: &Range<Gfn>) {
        self.put_back(root, gfns);
        self.bell().ring();
    }

    /// Takes over to free what `root`'s VM has buried.
    pub(crate) fn collect_later(&self, root: &RootRef<F>) {
        self.put_back(root, &NOTHING);
    }

    fn put_back(&self, root: &RootRef<F>, gfns: &Range<Gfn>) {
        let mut roots = self.hanging.lock(self.mmu());
        let [start, end] = &root.hanging;
        if !root.hangs.swap(true, Ordering::Relaxed) {
            roots.push(root.clone().into_raw());
            start.store(NOTHING.start.get(), Ordering::Relaxed);
            end.store(NOTHING.end.get(), Ordering::Relaxed);
        }
        start.fetch_min(gfns.start.get(), Ordering::Relaxed);
        end.fetch_max(gfns.end.get(), Ordering::Relaxed);
    }

    /// The root that has been longest on the list of those in which empty tables hang, and where.
    pub(crate) fn next_hanging(&self) -> Option<(RootRef<F>, Range<Gfn>)> {
        let mut roots = self.hanging.lock(self.mmu());
        // SAFETY: the list has the reference that was given up to it, and gives it once.
        let root = unsafe { RootRef::from_raw(roots.pop()?) };
        root.hangs.store(false, Ordering::Relaxed);
        let [first, last] =
            [0, 1].map(|index| Gfn::new(root.hanging[index].load(Ordering::Relaxed)));
        drop(roots);
        Some((root, first..last))
    }

    /// Whether `root` is on that list, and no other.
    fn is_only_hanging(&self, root: &RootRef<F>) -> bool {
        self.hanging.lock(self.mmu()).is_only(root)
    }
}

impl<F: Format> Root<F> {
    /// Takes the empty tables of `range` out, a slice of it. Returns whether all is done.
    ///
    /// Inside an invalidation of the range.
    fn prune_slice(&self, range: &mut Range<Gfn>, slice: Slice) -> bool {
        let _section = self.space().srcu.read_lock();
        let (changing, from) = (Changing::begin(self), range.start);
        let mut prune = Prune { flush: Flush::new(), entries: 0, is_full: false };
        let done = self.visit(range, &mut Budget::new(slice, self.mmu()), &mut prune);
        changing.finish(prune.flush, from..range.start);
        self.charge_entries(prune.entries);
        done
    }

    /// Whether a table whose entries are of `level` leads to nothing.
    fn is_empty(&self, table: Pfn, level: Level) -> bool {
        let space = self.space();
        let is_empty = |index| {
            let cell = space.tables.cell::<F>(table, index);
            loop {
                match cell.load().state(level) {
                    State::Empty => return ControlFlow::Continue(()),
                    State::Frozen => space.parking.wait(cell, self.mmu()),
                    State::Table(below) if self.is_empty(below, below_of(level)) => {
                        return ControlFlow::Continue(());
                    }
                    _ => return ControlFlow::Break(()),
                }
            }
        };
        (0..WORDS).try_for_each(is_empty).is_continue()
    }
}

struct Prune {
    flush: Flush,
    entries: u64,
    is_full: bool,
}

impl<F: Format> Visitor<F> for Prune {
    fn leaf(&mut self, _root: &Root<F>, _at: &At<'_, F>) -> bool {
        true
    }

    fn table(&mut self, root: &Root<F>, at: &At<'_, F>, table: Pfn) -> Option<u32> {
        let below = below_of(at.level);
        if at.level > LARGEST {
            return None;
        }
        if !root.is_empty(table, below) {
            // Of the lowest table nothing is to be taken out.
            return (below == Level::PAGE).then_some(WORDS as u32);
        }
        if !at.cell.replace(at.entry, Entry::EMPTY) {
            return None;
        }
        self.entries += 1;
        self.flush.add(at.gfn, at.level);
        let cost = root.dismantle(table, below, &mut self.flush);
        let count = root.space().graveyard.count() + self.flush.dead();
        self.is_full = count + tables_below(LARGEST) > BOUND;
        Some(cost + WORDS as u32)
    }

    fn is_full(&self) -> bool {
        self.is_full
    }
}
