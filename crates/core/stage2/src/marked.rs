//! Write-protecting the pages that a dirty log has had marks of.
//!
//! The pages come as words, 64 pages each, in order. A table of pages is looked for once, and its marked entries are changed
//! one after the other; the entries between them are not looked at. So the work grows with the marked pages, and where many
//! are marked it is that of going through the tables.
//!
//! A table that is kept at hand may be taken out of its tree meanwhile. It stays readable, since the slice is in a section.
//! Its place belongs then to a block that took all of it, which a log that is on refuses, or to nothing: a mark that was
//! taken is of a page that was mapped through a slot that is there, and a call that takes the slot away zaps what is below.
//! The entries of a table of pages that is out of its tree are not all removed ([`dismantle`](crate::dismantle)): to change
//! one of the others changes nothing that a CPU finds.

use core::ops::Range;

use mayfly_platform::address::Gfn;

use crate::flush::{Changing, Flush};
use crate::level::below_of;
use crate::range::{At, Budget, Slice};
use crate::root::Root;
use crate::tables::Table;
use crate::{Format, Level, Stage2, State};

/// Frames that a word has bits for.
const BITS: u64 = u64::BITS as u64;

impl<F: Format> Stage2<F> {
    /// Write-protects those frames of `gfns` whose bits are set in `count` words of marks. `word` says of the number of a
    /// word what its first frame is, and its bits, one for each of 64 frames from that on; the words are in order. The
    /// entries of other frames are not looked at, so the work grows with the frames that are marked. However they lie, TLBs
    /// are invalidated once for each root and slice. Blocks are split; without memory for a table a block is protected as
    /// a whole. Otherwise as [`Stage2::write_protect`].
    pub fn write_protect_marked(
        &self,
        gfns: Range<Gfn>,
        slice: Slice,
        count: usize,
        word: impl Fn(usize) -> (Gfn, u64),
    ) {
        self.in_slices(gfns, |root, left| root.protect_marked_slice(left, slice, count, &word));
    }
}

impl<F: Format> Root<F> {
    /// Write-protects what is marked of what is left of `range`, one slice of it. Returns whether all is done.
    fn protect_marked_slice(
        &self,
        range: &mut Range<Gfn>,
        slice: Slice,
        count: usize,
        word: &impl Fn(usize) -> (Gfn, u64),
    ) -> bool {
        // What no guest can have is not mapped.
        range.end = range.end.min(Self::LIMIT);
        let _section = self.space().srcu.read_lock();
        let (changing, from) = (Changing::begin(self), range.start);
        let mut protect = Protect { root: self, flush: Flush::new(), entries: 0, table: None };
        let mut budget = Budget::new(slice, self.mmu());
        let mut words = first_beyond(range.start, count, word)..count;
        let done = loop {
            let Some((first, marks)) = words.next().map(word).filter(|word| word.0 < range.end)
            else {
                break true;
            };
            let marks = marks & inside(first, range);
            if marks != 0 {
                protect.word(first, marks);
            }
            let end = Gfn::new(first.get().saturating_add(BITS)).min(range.end);
            range.start = range.start.max(end);
            if budget.spend(1 + marks.count_ones()).is_break() {
                break range.start >= range.end;
            }
        };
        if done {
            range.start = range.start.max(range.end);
        }
        changing.finish(protect.flush, from..range.start);
        self.charge_entries(protect.entries);
        done
    }
}

/// Whether one of `gfns` has its bit set in `count` words, in order, of which `word` tells what it tells
/// [`Stage2::write_protect_marked`].
pub fn any_marked(gfns: &Range<Gfn>, count: usize, word: impl Fn(usize) -> (Gfn, u64)) -> bool {
    (first_beyond(gfns.start, count, &word)..count)
        .map(word)
        .take_while(|(first, _)| *first < gfns.end)
        .any(|(first, marks)| marks & inside(first, gfns) != 0)
}

/// The first of `count` words in order that reaches beyond `gfn`.
fn first_beyond(gfn: Gfn, count: usize, word: &impl Fn(usize) -> (Gfn, u64)) -> usize {
    let (mut first, mut beyond) = (0, count);
    while first < beyond {
        let middle = first + (beyond - first) / 2;
        if word(middle).0.get().saturating_add(BITS) <= gfn.get() {
            first = middle + 1;
        } else {
            beyond = middle;
        }
    }
    first
}

/// The bits of a word from frame `first` on, which is before the end of `range`, that stand for frames of `range`.
fn inside(first: Gfn, range: &Range<Gfn>) -> u64 {
    let below = range.start.get().saturating_sub(first.get());
    let beyond = BITS.saturating_sub(range.end.get() - first.get());
    if below < BITS { u64::MAX << below & u64::MAX >> beyond } else { 0 }
}

struct Protect<'a, F: Format> {
    root: &'a Root<F>,
    flush: Flush,
    entries: u64,
    /// A table of pages, and the first frame that it has an entry for.
    table: Option<(Gfn, Table<'a>)>,
}

impl<'a, F: Format> Protect<'a, F> {
    /// Protects the frames from `first` on whose bits are set.
    fn word(&mut self, first: Gfn, mut marks: u64) {
        while marks != 0 {
            let gfn = Gfn::new(first.get() + u64::from(marks.trailing_zeros()));
            let (meant, left) = match self.table_of(gfn) {
                Ok(table) => {
                    let meant = up_to(first, gfn, Level::MIB2);
                    (meant, self.pages(table, first, marks & meant))
                }
                Err(level) => (up_to(first, gfn, level), 0),
            };
            if left != 0 {
                // It is out of its tree.
                self.table = None;
            }
            marks = marks & !meant | left;
        }
    }

    /// Protects pages of one table. Returns the bits of those that are left, where one is removed.
    fn pages(&mut self, table: Table<'a>, first: Gfn, part: u64) -> u64 {
        let (mut left, mut changed) = (part, 0_u64);
        while left != 0 {
            let bit = left.trailing_zeros();
            let gfn = Gfn::new(first.get() + u64::from(bit));
            let cell = table.cell::<F>(Level::PAGE.index_in::<F>(gfn));
            let entry = cell.load();
            match entry.state(Level::PAGE) {
                State::Leaf => {
                    if let Some(new) = entry.without_write(Level::PAGE) {
                        if !cell.replace(entry, new) {
                            continue;
                        }
                        changed |= 1 << bit;
                    }
                }
                State::Frozen => {
                    self.root.space().parking.wait(cell, self.root.mmu());
                    continue;
                }
                State::Removed => break,
                State::Empty | State::Table(_) => {}
            }
            left &= left - 1;
        }
        if changed != 0 {
            let lowest = changed.trailing_zeros();
            let count = BITS as u32 - changed.leading_zeros() - lowest;
            let lowest = Gfn::new(first.get() + u64::from(lowest));
            self.flush.add_run(lowest, Level::PAGE, count);
            self.entries += u64::from(changed.count_ones());
        }
        left
    }

    /// The table that has an entry for page `gfn`. If there is none, or no need of one, the level of the entry at which a
    /// walk ends: nothing below it may be written any more.
    fn table_of(&mut self, gfn: Gfn) -> Result<Table<'a>, Level> {
        let start = Level::MIB2.first(gfn);
        match self.table {
            Some((first, table)) if first == start => Ok(table),
            _ => {
                let table = self.find_table(gfn)?;
                self.table = Some((start, table));
                Ok(table)
            }
        }
    }

    fn find_table(&mut self, gfn: Gfn) -> Result<Table<'a>, Level> {
        let root = self.root;
        let frames = root.space().tables.linear_map();
        'root: loop {
            let (mut table, mut level) = (frames.table(root.top()), F::TOP);
            while level > Level::PAGE {
                let cell = table.cell::<F>(level.index_in::<F>(gfn));
                let entry = cell.load();
                match entry.state(level) {
                    State::Table(below) => (table, level) = (frames.table(below), below_of(level)),
                    State::Removed => continue 'root,
                    State::Frozen => root.space().parking.wait(cell, root.mmu()),
                    State::Empty => return Err(level),
                    State::Leaf => {
                        let Some(new) = entry.without_write(level) else { return Err(level) };
                        let first = level.first(gfn);
                        let at = At { cell, entry, level, gfn: first, whole: true };
                        if !root.split_at(&at) && cell.replace(entry, new) {
                            self.entries += 1;
                            self.flush.add(first, level);
                            return Err(level);
                        }
                    }
                }
            }
            return Ok(table);
        }
    }
}

/// The bits of a word from frame `first` on that stand for frames up to the end of the entry of `level` that `gfn`, one of
/// them, lies in.
fn up_to(first: Gfn, gfn: Gfn, level: Level) -> u64 {
    let end = level.first(gfn).get() + level.pages();
    let count = (end - first.get()).min(BITS);
    u64::MAX >> (BITS - count)
}
