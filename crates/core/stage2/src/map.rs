//! Installing a leaf: the work of a fault.

use core::ops::Range;

use mayfly_platform::address::{Gfn, Pfn};
use mayfly_platform::sync::{Ordering, fence};

use crate::cell::Cell;
use crate::flush::{Changing, Flush};
use crate::format::check_leaf;
use crate::grant::Grant;
use crate::graveyard;
use crate::level::below_of;
use crate::root::Root;
use crate::sequence::Seen;
use crate::{Entry, Error, Format, Leaf, Level, Permissions, State};

/// What became of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapped {
    /// It is in place.
    Installed,
    /// It is in place, where a leaf that allowed less was, which TLBs may still have, and fault by
    /// ([`Format::KEEPS_FAULTING`]; in other formats this is [`Mapped::Installed`]). The CPU that the fault was taken
    /// on has to forget the page (`litmus/S2+relax+local`). So it has with [`Mapped::Already`], since another CPU may
    /// have been here first.
    Relaxed,
    /// What is there allows as much already: another vCPU came first.
    Already,
    /// The host, or a memslot, has changed since the sequence was sampled, or is changing: look again.
    Retry,
    /// There are smaller mappings where the block would go, and they have to stay, or too many tables await reclaim
    /// already: map a page.
    TooLarge,
}

/// What an attempt at one entry came to.
pub(crate) enum Attempt {
    Done(Mapped),
    /// The entry is not what it was.
    Changed,
}

impl<F: Format> Grant<'_, F> {
    /// Maps it, if nothing has changed since its sample. The VM's memslots and the host were asked after that.
    ///
    /// What is smaller below it gives way to a block; a block above a page is split. Tables that are missing are made.
    /// Waits only for an entry that another CPU is changing at that moment. In a table that exists already this
    /// writes nothing but the entry.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`], [`Error::PfnOutOfRange`], [`Error::Misaligned`]; [`Error::OutOfMemory`], when there is
    /// none for a table: what was mapped still is.
    pub fn map(self) -> Result<Mapped, Error> {
        check_leaf::<F>(self.level, self.leaf.pfn)?;
        let Self { root, gfn, level, ref leaf, seen } = self;
        let gfns = Root::<F>::span(gfn, level)?;
        let mut spare = Spare { table: None, root };
        let frames = root.space().tables.linear_map();
        'root: loop {
            let (mut table, mut at) = (frames.table(root.top()), F::TOP);
            loop {
                let cell = table.cell::<F>(at.index_in::<F>(gfn));
                let entry = cell.load();
                let state = entry.state(at);
                match state {
                    State::Removed => continue 'root,
                    State::Frozen => root.space().parking.wait(cell, &*root.space().tables.mmu),
                    _ if at == level => match root.put(cell, at, entry, leaf, &gfns, seen) {
                        Attempt::Done(mapped) => return Ok(mapped),
                        Attempt::Changed => {}
                    },
                    State::Table(below) => (table, at) = (frames.table(below), below_of(at)),
                    State::Leaf => {
                        if allows(&entry.to_leaf(at), at, leaf, gfns.start) {
                            return Ok(Mapped::Already);
                        }
                        root.split(cell, at, gfn, entry, spare.take()?);
                    }
                    State::Empty => {
                        let new = spare.take()?;
                        match root.hang(cell, at, new, &gfns, seen) {
                            Attempt::Done(Mapped::Installed) => {}
                            Attempt::Changed => spare.table = Some(new),
                            Attempt::Done(refused) => {
                                spare.table = Some(new);
                                return Ok(refused);
                            }
                        }
                    }
                }
            }
        }
    }

    /// As [`Grant::map`] for a page, where that is simplest, and it mostly is: nothing is there, the tables are, and no
    /// invalidation is owed. Otherwise does nothing, and returns `None`.
    #[expect(clippy::inline_always, reason = "calls were a third of what a fault comes to")]
    #[inline(always)]
    pub fn map_missing_page(self) -> Option<Mapped> {
        let Self { root, gfn, level, leaf, seen } = self;
        if level > Level::PAGE
            || check_leaf::<F>(Level::PAGE, leaf.pfn).is_err()
            || !Root::<F>::reaches(gfn)
        {
            return None;
        }
        let space = root.space();
        let frames = space.tables.linear_map();
        let (mut table, mut at) = (frames.table(root.top()), F::TOP);
        while at > Level::PAGE {
            let State::Table(below) = table.cell::<F>(at.index_in::<F>(gfn)).load().state(at)
            else {
                return None;
            };
            (table, at) = (frames.table(below), below_of(at));
        }
        let cell = table.cell::<F>(Level::PAGE.index_in::<F>(gfn));
        let gfns = gfn..Gfn::new(gfn.get() + 1);
        if cell.load() != Entry::EMPTY
            || !space.sequence.permits(&gfns, seen)
            || space.owed.is_in_use()
        {
            return None;
        }
        let new = Entry::leaf(Level::PAGE, &leaf);
        match root.fill(cell, &gfns, seen, || new) {
            Attempt::Done(mapped) => Some(mapped),
            Attempt::Changed => None,
        }
    }
}

impl<F: Format> Root<F> {
    /// Puts `leaf` in the place of `entry`, which has its level: freeze, ask, thaw.
    fn put(
        &self,
        cell: Cell<'_, F>,
        level: Level,
        entry: Entry<F>,
        leaf: &Leaf,
        gfns: &Range<Gfn>,
        seen: Seen,
    ) -> Attempt {
        let space = self.space();
        let mmu = &*space.tables.mmu;
        let mut leaf = *leaf;
        let mut below = None;
        match entry.state(level) {
            State::Leaf => {
                let present = entry.to_leaf(level);
                if allows(&present, level, &leaf, gfns.start) {
                    return Attempt::Done(Mapped::Already);
                }
                leaf.dirty |= present.dirty && present.pfn == leaf.pfn;
                leaf.written |= present.written && present.pfn == leaf.pfn;
            }
            State::Table(table) => below = Some(table),
            _ => {}
        }
        // Asked before as well, so that a fault gets in the way of an invalidation once at most: the next time, it
        // waits for the invalidation to end.
        if !space.sequence.permits(gfns, seen) {
            return Attempt::Done(Mapped::Retry);
        }
        let keeps_tables =
            || self.role().marks_writes() || space.graveyard.count() >= graveyard::BOUND;
        if below.is_some() && keeps_tables() {
            return Attempt::Done(Mapped::TooLarge);
        }
        if leaf.permissions.contains(Permissions::WRITE) {
            self.pay_to_write(gfns, leaf.pfn);
        }
        let new = Entry::leaf(level, &leaf);
        if entry == Entry::EMPTY {
            // What most faults come to: there is nothing that a TLB could remember, and no table to bury.
            return self.fill(cell, gfns, seen, || new);
        }
        if !cell.replace(entry, Entry::FROZEN) {
            return Attempt::Changed;
        }
        // [install]
        fence(Ordering::SeqCst);
        if !space.sequence.permits(gfns, seen) {
            space.parking.thaw(cell, entry, mmu);
            return Attempt::Done(Mapped::Retry);
        }
        let mut flush = Flush::new();
        let mut changing = None;
        let mut mapped = Mapped::Installed;
        // Frozen until the TLBs have forgotten it (`litmus/S2+break+make`).
        if entry.requires_break_before_make(level, new, false) {
            if below.is_some() {
                self.forget_all(gfns);
            } else {
                self.forget(gfns.start, level);
            }
        } else if below.is_some() {
            changing = Some(Changing::begin(self));
            flush.add_table(gfns.start, level);
        } else if moves(entry, level, &leaf) {
            changing = Some(Changing::begin(self));
            flush.add(gfns.start, level);
        } else if F::KEEPS_FAULTING && grows(entry, level, &leaf) {
            mapped = Mapped::Relaxed;
        }
        space.parking.thaw(cell, new, mmu);
        if let Some(table) = below {
            self.dismantle(table, below_of(level), &mut flush);
        }
        match changing {
            Some(changing) => changing.finish(flush, gfns.clone()),
            None => flush.finish(self),
        }
        if below.is_some() {
            self.note_buried();
        }
        Attempt::Done(mapped)
    }

    /// Puts the table in frame `table` in the place of an empty entry of `level`, on the way to `gfns`. Not while
    /// something of those is taken away: a TLB may remember a block here still, and finding it beside a table is not
    /// for every TLB.
    pub(crate) fn hang(
        &self,
        cell: Cell<'_, F>,
        level: Level,
        table: Pfn,
        gfns: &Range<Gfn>,
        seen: Seen,
    ) -> Attempt {
        if !self.space().sequence.permits(gfns, seen) {
            return Attempt::Done(Mapped::Retry);
        }
        self.fill(cell, gfns, seen, || {
            self.children().note::<F>(level, gfns.start);
            Entry::table(table)
        })
    }

    /// Puts what `new` says in the place of an empty entry, on the way to `gfns`: freeze, ask, thaw.
    #[expect(clippy::inline_always, reason = "calls were a third of what a fault comes to")]
    #[inline(always)]
    fn fill(
        &self,
        cell: Cell<'_, F>,
        gfns: &Range<Gfn>,
        seen: Seen,
        new: impl FnOnce() -> Entry<F>,
    ) -> Attempt {
        let space = self.space();
        if !cell.replace(Entry::EMPTY, Entry::FROZEN) {
            return Attempt::Changed;
        }
        // [install]
        fence(Ordering::SeqCst);
        let permitted = space.sequence.permits(gfns, seen);
        let entry = if permitted { new() } else { Entry::EMPTY };
        space.parking.thaw(cell, entry, &*space.tables.mmu);
        Attempt::Done(if permitted { Mapped::Installed } else { Mapped::Retry })
    }
}

/// Whether `present`, at `level`, maps `gfn` as `leaf` would, with no less allowed.
fn allows(present: &Leaf, level: Level, leaf: &Leaf, gfn: Gfn) -> bool {
    let offset = gfn.get() & (level.pages() - 1);
    present.pfn.get() + offset == leaf.pfn.get()
        && present.permissions.contains(leaf.permissions)
        && present.memory == leaf.memory
        && (present.accessed || !leaf.accessed)
        && (present.written || !leaf.written)
}

/// Whether TLBs may keep a leaf in `entry` that `leaf` is not to be used beside.
fn moves<F: Format>(entry: Entry<F>, level: Level, leaf: &Leaf) -> bool {
    match entry.state(level) {
        State::Leaf => {
            let present = entry.to_leaf(level);
            present.pfn != leaf.pfn
                || present.memory != leaf.memory
                || !leaf.permissions.contains(present.permissions)
        }
        _ => false,
    }
}

/// Whether `leaf` allows what the leaf that was there did not.
fn grows<F: Format>(entry: Entry<F>, level: Level, leaf: &Leaf) -> bool {
    !entry.to_leaf(level).permissions.contains(leaf.permissions)
}

/// A table made ready before it is known whether it is needed.
struct Spare<'a, F: Format> {
    table: Option<Pfn>,
    root: &'a Root<F>,
}

impl<F: Format> Spare<'_, F> {
    fn take(&mut self) -> Result<Pfn, Error> {
        match self.table.take() {
            Some(table) => Ok(table),
            None => self.root.allocate_table(),
        }
    }
}

impl<F: Format> Drop for Spare<'_, F> {
    fn drop(&mut self) {
        if let Some(table) = self.table {
            self.root.free_table(table);
        }
    }
}
