//! Which slots have given host memory.
//!
//! Slots may share host memory, so ranges of it overlap, and a search for all that meet a range needs more than their
//! order. The entries are sorted by their beginning, and read as a balanced search tree: the middle entry is the root,
//! the entries to its left are the left subtree, those to its right are the right one, and so on down. Each entry knows
//! the greatest end in its subtree. So a search skips whole subtrees that end too early, and entries that begin too
//! late, which lie to the right. This is the interval tree of Cormen et al., "Introduction to Algorithms", section
//! 14.3, without its pointers.

use alloc::vec::Vec;
use core::ops::Range;

use mayfly_platform::memory::OutOfMemory;

use crate::{Backing, PAGE_SHIFT, PAGE_SIZE, Slot};

#[derive(Debug, Default)]
pub(crate) struct BackingIndex {
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The host memory, in positions.
    start: u64,
    end: u64,
    /// The greatest end in this entry's subtree.
    reach: u64,
    /// The slot's place in the snapshot.
    slot: usize,
}

impl BackingIndex {
    /// This after the slot at `old` was taken out of the snapshot, and then `new` put in.
    pub(crate) fn try_edited<B: Backing>(
        &self,
        old: Option<usize>,
        new: Option<(usize, &Slot<B>)>,
    ) -> Result<Self, OutOfMemory> {
        let mut entries = Vec::new();
        entries.try_reserve_exact(self.entries.len() + 1)?;
        for &entry in &self.entries {
            if Some(entry.slot) == old {
                continue;
            }
            let slot = entry.slot - usize::from(old.is_some_and(|old| old < entry.slot));
            let slot = slot + usize::from(new.is_some_and(|(new, _)| new <= slot));
            entries.push(Entry { slot, ..entry });
        }
        if let Some((slot, new)) = new {
            let start = new.backing().position();
            let end = start + new.size();
            let at = entries.partition_point(|entry| entry.start < start);
            entries.insert(at, Entry { start, end, reach: end, slot });
        }
        set_reach(&mut entries);
        Ok(Self { entries })
    }

    /// The slots that have host memory of `positions`: the place of each, and which of its pages.
    pub(crate) fn overlapping(&self, positions: Range<u64>) -> Overlapping<'_> {
        Overlapping { index: self, positions, next: 0 }
    }

    /// As [`BackingIndex::overlapping`], the first at `from` or behind, in an order that stays: what it gives, and `from`
    /// for the next. Takes time in the logarithm of the number of slots.
    pub(crate) fn first_from(
        &self,
        positions: &Range<u64>,
        from: usize,
    ) -> Option<(usize, (usize, Range<u64>))> {
        let search = Search { entries: &self.entries, positions, from };
        let at = search.first(0..self.entries.len(), &mut || ())?;
        let Entry { start, end, slot, .. } = self.entries[at];
        let first = (positions.start.max(start) - start) >> PAGE_SHIFT;
        let last = (positions.end.min(end) - start).div_ceil(PAGE_SIZE);
        Some((at + 1, (slot, first..last)))
    }

    /// What the entries take, in bytes.
    pub(crate) fn held(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
    }
}

/// Makes every `reach` in `tree` what it should be, and returns the greatest.
fn set_reach(tree: &mut [Entry]) -> u64 {
    let (left, rest) = tree.split_at_mut(tree.len() / 2);
    let Some((root, right)) = rest.split_first_mut() else { return 0 };
    root.reach = root.end.max(set_reach(left)).max(set_reach(right));
    root.reach
}

pub(crate) struct Overlapping<'a> {
    index: &'a BackingIndex,
    positions: Range<u64>,
    next: usize,
}

impl Iterator for Overlapping<'_> {
    type Item = (usize, Range<u64>);

    fn next(&mut self) -> Option<Self::Item> {
        let (next, found) = self.index.first_from(&self.positions, self.next)?;
        self.next = next;
        Some(found)
    }
}

/// For the first entry, at `from` or behind, that has something of `positions`.
struct Search<'a> {
    entries: &'a [Entry],
    positions: &'a Range<u64>,
    from: usize,
}

impl Search<'_> {
    /// In the subtree of `entries`. `look` is called for each entry that is looked at.
    ///
    /// Where a subtree lies behind `from` as a whole, reaches far enough, and its root begins early enough, something is
    /// found in it; so at most two ways down are gone in vain, that to `from` and that to what begins too late.
    fn first(&self, entries: Range<usize>, look: &mut impl FnMut()) -> Option<usize> {
        if entries.is_empty() || entries.end <= self.from {
            return None;
        }
        let middle = entries.start + entries.len() / 2;
        let root = &self.entries[middle];
        look();
        if root.reach <= self.positions.start || self.positions.is_empty() {
            return None;
        }
        if let found @ Some(_) = self.first(entries.start..middle, look) {
            return found;
        }
        if root.start >= self.positions.end {
            return None;
        }
        if middle >= self.from && root.end > self.positions.start {
            return Some(middle);
        }
        self.first(middle + 1..entries.end, look)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The height of the tree at most: 2^15 - 1 entries, as many as an address space has slots.
    const HEIGHT: usize = 15;

    /// As many entries as there are slots, all over the same memory but for a page more at each end.
    #[test]
    #[cfg_attr(miri, ignore = "as many slots as there can be take Miri minutes")]
    fn an_index_of_all_slots_that_there_can_be_is_searched_within_its_height() {
        let count = (1 << HEIGHT) - 1;
        let mut entries = Vec::new();
        for slot in 0..count {
            let (start, end) = (slot as u64 * PAGE_SIZE, (2 * count - slot) as u64 * PAGE_SIZE);
            entries.push(Entry { start, end, reach: end, slot });
        }
        set_reach(&mut entries);
        let index = BackingIndex { entries };
        let found = |page: usize| -> BTreeSet<_> {
            let start = page as u64 * PAGE_SIZE;
            index.overlapping(start..start + 1).map(|(slot, _)| slot).collect()
        };
        assert_eq!(found(count - 1), (0..count).collect());
        assert_eq!(found(100), (0..=100).collect());
        assert_eq!(found(2 * count - 100), (0..100).collect());
        assert_eq!(found(2 * count), BTreeSet::new());
    }
    #[test]
    #[cfg_attr(miri, ignore = "as many slots as there can be take Miri minutes")]
    fn going_on_behind_a_slot_takes_no_longer_than_the_tree_is_high() {
        let count = (1 << HEIGHT) - 1;
        // Two of three lie over the page that is looked for, and the third ends before.
        let entry = |slot: usize| {
            let end = if slot % 3 == 1 { slot + 1 } else { 2 * count };
            let (start, end) = (slot as u64 * PAGE_SIZE, end as u64 * PAGE_SIZE);
            Entry { start, end, reach: end, slot }
        };
        let mut entries: Vec<_> = (0..count).map(entry).collect();
        set_reach(&mut entries);
        let positions = count as u64 * PAGE_SIZE..(count as u64 + 1) * PAGE_SIZE;
        let (mut from, mut found, mut looks) = (0, 0, 0);
        loop {
            let mut here = 0;
            let search = Search { entries: &entries, positions: &positions, from };
            let first = search.first(0..count, &mut || here += 1);
            assert!(here <= 3 * HEIGHT, "{here} entries looked at behind {from}");
            looks += here;
            let Some(at) = first else { break };
            (from, found) = (at + 1, found + 1);
        }
        assert_eq!(found, count - count / 3);
        assert!(looks <= 2 * HEIGHT * count, "{looks}");
    }
}
