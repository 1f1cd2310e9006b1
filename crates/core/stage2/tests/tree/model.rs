//! A naive map: which leaf is where, in order.

use std::collections::BTreeMap;
use std::ops::Range;

use mayfly_platform::address::Pfn;
use mayfly_stage2::{Leaf, Level, Mapped, MemoryType, Permissions, Replacement};

/// What one root maps, by first frame.
#[derive(Default)]
pub(crate) struct Model {
    leaves: BTreeMap<u64, (Level, Leaf)>,
}

impl Model {
    /// The leaf that `gfn` lies in.
    pub(crate) fn translate(&self, gfn: u64) -> Option<(Level, Leaf)> {
        let (start, (level, leaf)) = self.leaves.range(..=gfn).next_back()?;
        (gfn < start + level.pages()).then_some((*level, *leaf))
    }

    /// First frames of the leaves that map something of `range`.
    pub(crate) fn in_range(&self, range: &Range<u64>) -> Vec<u64> {
        let mut starts = Vec::new();
        if range.is_empty() {
            return starts;
        }
        if let Some((start, (level, _))) = self.leaves.range(..range.start).next_back()
            && start + level.pages() > range.start
        {
            starts.push(*start);
        }
        starts.extend(self.leaves.range(range.clone()).map(|(start, _)| *start));
        starts
    }

    pub(crate) fn starts(&self) -> impl Iterator<Item = u64> {
        self.leaves.keys().copied()
    }

    pub(crate) fn map(&mut self, gfn: u64, level: Level, leaf: &Leaf) -> Mapped {
        let first = gfn & !(level.pages() - 1);
        while let Some((present_level, present)) = self.translate(first) {
            if present_level < level {
                break;
            }
            let start = first & !(present_level.pages() - 1);
            if present.pfn.get() + (first - start) == leaf.pfn.get()
                && present.permissions.contains(leaf.permissions)
                && present.memory == leaf.memory
                && (present.accessed || !leaf.accessed)
            {
                return Mapped::Already;
            }
            if present_level == level {
                break;
            }
            self.split(start);
        }
        for start in self.in_range(&(first..first + level.pages())) {
            self.leaves.remove(&start);
        }
        self.leaves.insert(first, (level, *leaf));
        Mapped::Installed
    }

    pub(crate) fn zap(&mut self, range: &Range<u64>) -> Vec<(u64, Level, Leaf)> {
        let zapped = self.in_range(range).into_iter();
        zapped
            .map(|start| {
                let (level, leaf) = self.leaves.remove(&start).unwrap();
                (start, level, leaf)
            })
            .collect()
    }

    /// Returns what was writable: first frame, and number of frames.
    pub(crate) fn write_protect(&mut self, range: &Range<u64>) -> Vec<(u64, u64)> {
        let is_writable = |leaf: &Leaf| leaf.permissions.contains(Permissions::WRITE);
        self.split_jutting(range, is_writable);
        self.change(range, |leaf| {
            let was = is_writable(leaf);
            leaf.permissions -= Permissions::WRITE;
            was
        })
    }

    pub(crate) fn replace(&mut self, gfn: u64, with: &Replacement) {
        self.split_jutting(&(gfn..gfn + 1), |_| true);
        let Some((_, leaf)) = self.leaves.get_mut(&gfn) else { return };
        if leaf.pfn == with.new {
            return;
        }
        let is_writable = leaf.permissions.contains(Permissions::WRITE);
        let is_memory = leaf.memory == MemoryType::WriteBack;
        if leaf.pfn == with.old && with.same_contents && !is_writable && is_memory {
            *leaf = Leaf { pfn: with.new, written: false, ..*leaf };
        } else {
            self.leaves.remove(&gfn);
        }
    }

    pub(crate) fn allow_writes(&mut self, gfn: u64, pfn: Pfn) {
        let may = |leaf: &Leaf| !leaf.permissions.contains(Permissions::WRITE);
        self.split_jutting(&(gfn..gfn + 1), may);
        if let Some((_, leaf)) = self.leaves.get_mut(&gfn)
            && leaf.pfn == pfn
            && may(leaf)
        {
            leaf.permissions |= Permissions::WRITE;
        }
    }

    /// Turns the block at `start` into those of the next smaller size.
    fn split(&mut self, start: u64) {
        let (level, block) = self.leaves.remove(&start).unwrap();
        let below = level.below().unwrap();
        for offset in (0..level.pages()).step_by(below.pages() as usize) {
            let pfn = Pfn::new(block.pfn.get() + offset);
            self.leaves.insert(start + offset, (below, Leaf { pfn, ..block }));
        }
    }

    /// Splits blocks that jut out of `range`, as long as there are any.
    fn split_jutting(&mut self, range: &Range<u64>, of_interest: impl Fn(&Leaf) -> bool) {
        loop {
            let juts = |start: &u64| {
                let (level, leaf) = &self.leaves[start];
                of_interest(leaf) && (*start < range.start || start + level.pages() > range.end)
            };
            let Some(start) = self.in_range(range).into_iter().find(juts) else { return };
            self.split(start);
        }
    }

    /// Returns what had the mark: first frame, and number of frames.
    pub(crate) fn age(&mut self, range: &Range<u64>) -> Vec<(u64, u64)> {
        self.change(range, |leaf| std::mem::replace(&mut leaf.accessed, false))
    }

    fn change(
        &mut self,
        range: &Range<u64>,
        mut one: impl FnMut(&mut Leaf) -> bool,
    ) -> Vec<(u64, u64)> {
        let mut changed = Vec::new();
        for start in self.in_range(range) {
            let (level, leaf) = self.leaves.get_mut(&start).unwrap();
            if one(leaf) {
                changed.push((start, level.pages()));
            }
        }
        changed
    }
}
