//! Which slots have given host memory.
//!
//! Slots may share host memory, so ranges of it overlap, and a search for all that meet a range needs more than their
//! order. The entries are sorted by their beginning, and read as a balanced search tree: the middle entry is the root,
//! what lies left of it the left subtree, what lies right of it the right one, and so on down. Each entry knows the
//! greatest end in its subtree, so a search leaves out what ends too early (left out whole), and what begins too late
//! (it lies to the right). This is the interval tree of Cormen et al., "Introduction to Algorithms", section 14.3,
//! without its pointers.

use alloc::vec::Vec;
use core::ops::Range;

use mayfly_platform::memory::OutOfMemory;

use crate::{Backing, PAGE_SHIFT, PAGE_SIZE, Slot};

/// The greatest height of the tree: 2^15 - 1 entries, as many as an address space has slots.
const HEIGHT: usize = 15;

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
        let mut found = Overlapping { positions, todo: [&[]; HEIGHT + 1], len: 0 };
        if !found.positions.is_empty() {
            found.push(&self.entries);
        }
        found
    }

    /// What the entries take, in bytes.
    pub(crate) fn held(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
    }
}

/// The root of a subtree, with what lies left and right of it.
fn root(tree: &[Entry]) -> Option<(&[Entry], &Entry, &[Entry])> {
    let (left, rest) = tree.split_at(tree.len() / 2);
    let (root, right) = rest.split_first()?;
    Some((left, root, right))
}

/// Makes every `reach` in `tree` what it should be, and returns the greatest.
fn set_reach(tree: &mut [Entry]) -> u64 {
    let (left, rest) = tree.split_at_mut(tree.len() / 2);
    let Some((root, right)) = rest.split_first_mut() else { return 0 };
    root.reach = root.end.max(set_reach(left)).max(set_reach(right));
    root.reach
}

pub(crate) struct Overlapping<'a> {
    positions: Range<u64>,
    /// Subtrees still to be searched, none of them empty. Taking one out puts at most its two children in, so
    /// there are never more than the tree is high, and one.
    todo: [&'a [Entry]; HEIGHT + 1],
    len: usize,
}

impl<'a> Overlapping<'a> {
    fn push(&mut self, tree: &'a [Entry]) {
        if !tree.is_empty() {
            self.todo[self.len] = tree;
            self.len += 1;
        }
    }

    fn pop(&mut self) -> Option<&'a [Entry]> {
        self.len = self.len.checked_sub(1)?;
        Some(self.todo[self.len])
    }
}

impl Iterator for Overlapping<'_> {
    type Item = (usize, Range<u64>);

    fn next(&mut self) -> Option<Self::Item> {
        while let Some((left, root, right)) = root(self.pop()?) {
            let Range { start, end } = self.positions;
            if root.reach <= start {
                continue;
            }
            self.push(left);
            if root.start < end {
                self.push(right);
                if root.end > start {
                    let first = (start.max(root.start) - root.start) >> PAGE_SHIFT;
                    let last = (end.min(root.end) - root.start).div_ceil(PAGE_SIZE);
                    return Some((root.slot, first..last));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

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
}
