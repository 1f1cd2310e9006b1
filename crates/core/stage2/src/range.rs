//! Going through the entries of a range, in slices.
//!
//! An operation on a range visits the entries that map something of the range, in order, and stops when its [`Budget`]
//! is spent. The range then begins where the next slice continues. Between two slices the operation holds nothing: no
//! section, no entry, and no lock except the one by which callers that replace roots take turns. There the embedder may
//! take interrupts, and let other threads run
//! ([`Platform::preemption_point`](mayfly_platform::Platform::preemption_point)).
//!
//! A slice ends when it has looked at as many entries as it may, plus the entry at which it then is. That entry leads
//! at most to the tables below one entry of 1 GiB, which are taken out together (two entries for each of 513 tables;
//! where they were left empty, all of their entries), plus the burial of what readers have left by then.
//!
//! Each entry is loaded, looked at, and replaced by compare-exchange. The exchange fails only if the entry was changed
//! in between, by hardware that notes an access (twice at most: accessed, dirty) or by a fault. A fault that the
//! [sequence](crate::sequence) refuses freezes an entry once at most, before it waits. So an announced operation
//! collides with each vCPU once, however often the guest touches the range.

use core::ops::{ControlFlow, Range};
use core::time::Duration;

use mayfly_platform::Mmu;
use mayfly_platform::address::{Gfn, Pfn};
use mayfly_platform::time::Instant;

use crate::cell::Cell;
use crate::level::below_of;
use crate::root::Root;
use crate::tables::Table;
use crate::{Entry, Format, Level, State};

/// How much a slice of work may do before it stops for a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Entries that it may look at.
    pub entries: u32,
    /// How long it may take. It stops at the first table that it finishes after this.
    pub time: Duration,
}

impl Default for Slice {
    /// 65,536 entries and 50 us.
    fn default() -> Self {
        Self { entries: 1 << 16, time: Duration::from_micros(50) }
    }
}

/// Looks at the clock are this many entries apart.
const PER_LOOK: u32 = 64;

/// What is left of a slice.
pub(crate) struct Budget<'a> {
    /// Entries until the clock is looked at, or there are no more. Not 0 before it is spent.
    until_look: u32,
    /// Entries after those.
    beyond: u32,
    deadline: Instant,
    mmu: &'a dyn Mmu,
}

impl<'a> Budget<'a> {
    pub(crate) fn new(slice: Slice, mmu: &'a dyn Mmu) -> Self {
        let deadline = mmu.now() + slice.time;
        let mut budget = Self { until_look: 0, beyond: slice.entries.max(1), deadline, mmu };
        budget.set_aside();
        budget
    }

    /// Takes the cost of `entries` entries. Breaks when that was the last.
    #[inline]
    pub(crate) fn spend(&mut self, entries: u32) -> ControlFlow<Stop> {
        if entries < self.until_look {
            self.until_look -= entries;
            return ControlFlow::Continue(());
        }
        self.look(entries)
    }

    #[cold]
    #[inline(never)]
    fn look(&mut self, entries: u32) -> ControlFlow<Stop> {
        self.beyond = self.beyond.saturating_sub(entries - self.until_look);
        if self.beyond == 0 || self.mmu.now() >= self.deadline {
            (self.until_look, self.beyond) = (0, 0);
            return ControlFlow::Break(Stop::Spent);
        }
        self.set_aside();
        ControlFlow::Continue(())
    }

    fn set_aside(&mut self) {
        self.until_look = self.beyond.min(PER_LOOK);
        self.beyond -= self.until_look;
    }
}

/// Why a walk over a range stopped before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The budget is spent.
    Spent,
    /// The table was taken out of the tree: start again at the root.
    Detached,
}

/// What to do at the entries of a range.
pub(crate) trait Visitor<F: Format> {
    /// A page or block that maps something of the range. Returns whether it is done with; if not, it is loaded again.
    fn leaf(&mut self, root: &Root<F>, at: &At<'_, F>) -> bool;

    /// The first frame from `gfn` on that it has something to do with; those before are not visited.
    fn next(&mut self, gfn: Gfn) -> Gfn {
        gfn
    }

    /// A page or block all of which lies in the range, and perhaps others right behind it. Returns how many it is done
    /// with; where none, it is visited by itself.
    fn leaves(&mut self, _run: &Run<'_>) -> u32 {
        0
    }

    /// A table all of whose entries lie in the range. Returns the cost, in entries, if it is done with; otherwise its
    /// entries are visited.
    fn table(&mut self, _root: &Root<F>, _at: &At<'_, F>, _table: Pfn) -> Option<u32> {
        None
    }

    /// Whether it can take no more: the slice ends then.
    fn is_full(&self) -> bool {
        false
    }
}

/// An entry, and where it is.
pub(crate) struct At<'a, F> {
    pub(crate) cell: Cell<'a, F>,
    pub(crate) entry: Entry<F>,
    pub(crate) level: Level,
    /// The first frame that the entry stands for.
    pub(crate) gfn: Gfn,
    /// Whether all that the entry stands for lies in the range.
    pub(crate) whole: bool,
}

/// Entries of a table that follow each other, all of which lie in the range.
pub(crate) struct Run<'a> {
    table: Table<'a>,
    /// The first.
    index: usize,
    pub(crate) count: u32,
    pub(crate) level: Level,
    /// The first frame of the first.
    pub(crate) gfn: Gfn,
}

impl<'a> Run<'a> {
    /// The first frame of entry `number` of them.
    #[inline]
    pub(crate) fn gfn_of(&self, number: u32) -> Gfn {
        Gfn::new(self.gfn.get() + u64::from(number) * self.level.pages())
    }

    /// Where entry `number` of them is.
    #[inline]
    pub(crate) fn cell<F: Format>(&self, number: u32) -> Cell<'a, F> {
        self.table.cell(self.index + number as usize)
    }
}

impl<F: Format> Root<F> {
    /// Visits what is left of `range`, until the budget is spent. Returns whether the range is done with.
    pub(crate) fn visit(
        &self,
        range: &mut Range<Gfn>,
        budget: &mut Budget<'_>,
        visitor: &mut impl Visitor<F>,
    ) -> bool {
        range.end = range.end.min(Self::LIMIT);
        while range.start < range.end {
            if let ControlFlow::Break(Stop::Spent) =
                self.visit_table(self.top(), F::TOP, range, budget, visitor)
            {
                return range.start >= range.end;
            }
        }
        true
    }

    fn visit_table(
        &self,
        table: Pfn,
        level: Level,
        range: &mut Range<Gfn>,
        budget: &mut Budget<'_>,
        visitor: &mut impl Visitor<F>,
    ) -> ControlFlow<Stop> {
        let space = self.space();
        let cells = space.tables.linear_map().table(table);
        let table_end = if level == F::TOP {
            Self::LIMIT
        } else {
            let above = level.above();
            Gfn::new(above.first(range.start).get() + above.pages())
        };
        let (end, pages) = (range.end.min(table_end), level.pages());
        // Kept at hand: what is behind a reference is loaded again after each atomic load.
        let mut start = range.start;
        while start < end {
            let wanted = visitor.next(start);
            if wanted > start {
                start = wanted.min(end);
                range.start = start;
                continue;
            }
            let gfn = level.first(start);
            let next = Gfn::new(gfn.get() + pages);
            let cell = cells.cell::<F>(level.index_in::<F>(gfn));
            let entry = cell.load();
            let whole = start == gfn && next <= range.end;
            let mut cost = 1;
            match entry.state(level) {
                State::Removed => return ControlFlow::Break(Stop::Detached),
                State::Frozen => {
                    space.parking.wait(cell, &*space.tables.mmu);
                    continue;
                }
                State::Empty => {}
                State::Leaf => {
                    if whole {
                        let left = ((end.get() - gfn.get()) >> level.shift()) as u32;
                        let (index, count) =
                            (level.index_in::<F>(gfn), left.min(budget.until_look));
                        let done = visitor.leaves(&Run { table: cells, index, count, level, gfn });
                        if done > 0 {
                            start = Gfn::new(gfn.get() + u64::from(done) * pages);
                            range.start = start;
                            budget.spend(done)?;
                            continue;
                        }
                    }
                    if !visitor.leaf(self, &At { cell, entry, level, gfn, whole }) {
                        continue;
                    }
                }
                State::Table(below) => {
                    let at = At { cell, entry, level, gfn, whole };
                    let done = if whole { visitor.table(self, &at, below) } else { None };
                    match done {
                        Some(entries) => cost = entries,
                        None if cell.load() == entry => {
                            self.visit_table(below, below_of(level), range, budget, visitor)?;
                            start = range.start;
                            continue;
                        }
                        None => continue,
                    }
                }
            }
            start = next;
            range.start = next;
            if visitor.is_full() {
                return ControlFlow::Break(Stop::Spent);
            }
            budget.spend(cost)?;
        }
        ControlFlow::Continue(())
    }
}
