//! Taking a table apart that is out of its tree, before it is buried.

use mayfly_platform::address::Pfn;
use mayfly_platform::frames::WORDS;

use crate::flush::Flush;
use crate::level::below_of;
use crate::root::Root;
use crate::{Entry, Format, Level, State};

impl<F: Format> Root<F> {
    /// Takes apart what hung below an entry that is now something else: a table whose entries are of `level`. No CPU
    /// finds a way in any more. A CPU that is inside already finds the entries that lead further removed, and starts
    /// again.
    ///
    /// The entries of the lowest tables own nothing, so they stay as they are: no CPU finds what a fault puts there,
    /// and the fault is taken again. Tells `flush` of the leaves' sizes. Returns how many entries it has gone through.
    pub(crate) fn dismantle(&self, table: Pfn, level: Level, flush: &mut Flush) -> u32 {
        let is_lowest = level == Level::PAGE;
        let indices = if is_lowest { 0..1 } else { 0..WORDS };
        let mut entries = indices.len() as u32;
        for index in indices {
            match self.remove(table, index).state(level) {
                State::Table(below) => entries += self.dismantle(below, below_of(level), flush),
                State::Leaf => flush.found(level),
                _ if is_lowest => flush.found(level),
                _ => {}
            }
        }
        flush.add_dead(table, self);
        entries
    }

    /// Takes whatever entry `index` of a table holds out of reach, for good: nothing will be put there again.
    pub(crate) fn remove(&self, pfn: Pfn, index: usize) -> Entry<F> {
        let space = self.space();
        let cell = space.tables.cell::<F>(pfn, index);
        loop {
            let entry = cell.load();
            if entry == Entry::FROZEN || entry == Entry::AWAITED {
                space.parking.wait(cell, &*space.tables.mmu);
            } else if cell.replace(entry, Entry::REMOVED) {
                return entry;
            }
        }
    }
}
