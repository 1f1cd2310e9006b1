//! The scanner: what it does with each page that it looks at.

use std::collections::HashMap;

use mayfly_platform::address::Pfn;

use super::contents::{checksum, is_zero};
use super::item::{Items, Kind};
use super::stable::Stable;
use super::tunables::Tunables;
use crate::HostSpace;
use crate::address_space::{Looked, Merged, equal};

/// How far the scanner is.
#[derive(Debug, Default)]
pub(super) struct Scan {
    pub(super) items: Items,
    pub(super) stable: Stable,
    /// Pages by the checksum of what they held when they were looked at in this pass.
    unstable: HashMap<u64, Vec<u64>>,
    /// The page that comes next.
    next: u64,
    pub(super) full_scans: u64,
    pub(super) pages_scanned: u64,
    pub(super) pages_merged: u64,
    /// How many those were when the last pass was over.
    merged_before: u64,
    /// Pages that go to be merged together.
    run: PageRun,
}

/// Pages one after the other, to be merged.
#[derive(Debug, Default)]
struct PageRun {
    first: u64,
    /// What each is to share; its own frame, if it shares it already.
    frames: Vec<Pfn>,
    /// The same of those that do not share it yet.
    merging: Vec<Pfn>,
}

impl PageRun {
    fn is_next(&self, page: u64, items: &Items) -> bool {
        self.first + self.frames.len() as u64 == page && items.are_together(self.first, page)
    }
}

impl Scan {
    pub(super) fn batch(&mut self, space: &HostSpace, tunables: &Tunables) -> u64 {
        if self.items.len() == 0 {
            // No pass will be over.
            space.settle();
            self.prune(space);
        }
        let most = tunables.pages_to_scan.min(self.items.len());
        for scanned in 0..most {
            let page = self.items.at_or_after(self.next).or_else(|| {
                self.end_pass(space);
                self.items.at_or_after(0)
            });
            let Some(page) = page else { return scanned };
            self.pages_scanned += 1;
            self.look_at(page, space, tunables);
            self.next = page + 1;
        }
        if most > 0 && self.items.at_or_after(self.next).is_none() {
            self.end_pass(space);
        }
        self.flush(space);
        most
    }

    fn end_pass(&mut self, space: &HostSpace) {
        self.flush(space);
        self.next = 0;
        self.full_scans += 1;
        self.unstable.clear();
        if self.pages_merged == self.merged_before {
            // Nothing more comes that would pay in passing.
            space.settle();
        }
        self.merged_before = self.pages_merged;
        self.prune(space);
    }

    pub(super) fn prune(&mut self, space: &HostSpace) {
        space.while_settled(|| self.stable.prune(space.arena()));
    }

    fn look_at(&mut self, page: u64, space: &HostSpace, tunables: &Tunables) {
        let arena = space.arena();
        let looked = space.look(page, |found| (found, checksum(arena, found.frame)));
        let Some((Looked { frame, shared }, sum)) = looked else {
            // It has no frame: nothing to save.
            return self.items.set(page, Kind::New);
        };
        if shared && (self.stable.contains(sum, frame) || space.is_zero_frame(frame)) {
            if !self.run.merging.is_empty() && self.run.is_next(page, &self.items) {
                // So that it does not part those before from those behind.
                self.run.frames.push(frame);
            }
            return self.items.set(page, Kind::Merged);
        }
        let has_room = |stable: Pfn, pages: u64| {
            let coming = self.run.merging.iter().filter(|&&frame| frame == stable).count() as u64;
            pages + coming < tunables.max_page_sharing
        };
        if let Some(with) = self.stable.find(sum, frame, arena, has_room) {
            return self.merge(page, with, space, tunables);
        }
        if self.items.replace_checksum(page, sum) != Some(sum) {
            return self.items.set(page, Kind::Volatile);
        }
        if tunables.use_zero_pages
            && is_zero(arena, frame)
            && let Ok(zero) = space.zero_frame()
        {
            return self.merge(page, zero, space, tunables);
        }
        if let Some(with) = self.promote(page, frame, sum, space, tunables) {
            return self.merge(page, with, space, tunables);
        }
        self.unstable.entry(sum).or_default().push(page);
        self.items.set(page, Kind::Unshared);
    }

    /// Puts the frame of an unstable page that holds the same as `frame` into the stable set.
    fn promote(
        &mut self,
        page: u64,
        frame: Pfn,
        sum: u64,
        space: &HostSpace,
        tunables: &Tunables,
    ) -> Option<Pfn> {
        let arena = space.arena();
        let Self { items, stable, unstable, .. } = self;
        let others = unstable.get_mut(&sum)?;
        // Something else may be where a page was when it was looked at; or it may not be registered any more.
        let is_equal = |found: Looked| {
            let is_stable = stable.contains(sum, found.frame) || space.is_zero_frame(found.frame);
            // Forks of the page may have it.
            let has_room = arena.references(found.frame) < tunables.max_page_sharing;
            found.frame != frame && !is_stable && has_room && equal(arena, found.frame, frame)
        };
        let is_another = |other: u64| other != page && items.at_or_after(other) == Some(other);
        let hold = |found: Looked| {
            is_equal(found).then(|| {
                arena.get(found.frame);
                found.frame
            })
        };
        let mut candidates = others.iter().enumerate().filter(|(_, other)| is_another(**other));
        let found =
            candidates.find_map(|(index, &other)| Some((index, other, space.look(other, hold)??)));
        let (index, other, with) = found?;
        others.swap_remove(index);
        // It holds the reference that it got above; its contents stay from here on. Not where the page has another by
        // now: then this may be a page's that was moved, and that is written.
        if !space.close_page(other, with) || checksum(arena, with) != sum {
            arena.put(with);
            return None;
        }
        self.stable.insert(sum, with);
        self.items.set(other, Kind::Merged);
        Some(with)
    }

    /// Merges `page`, now or with those that come next.
    fn merge(&mut self, page: u64, with: Pfn, space: &HostSpace, tunables: &Tunables) {
        if !self.run.merging.is_empty() && !self.run.is_next(page, &self.items) {
            self.flush(space);
        }
        if self.run.merging.is_empty() {
            self.run = PageRun { first: page, ..PageRun::default() };
        }
        self.run.frames.push(with);
        self.run.merging.push(with);
        if self.run.merging.len() as u64 >= tunables.pages_to_merge {
            self.flush(space);
        }
    }

    /// Merges what was put aside.
    fn flush(&mut self, space: &HostSpace) {
        let PageRun { first, frames, merging } = std::mem::take(&mut self.run);
        if merging.is_empty() {
            return;
        }
        for (page, merged) in (first..).zip(space.merge(first, &frames)) {
            let is_merged = merged != Merged::No;
            self.items.set(page, if is_merged { Kind::Merged } else { Kind::Volatile });
            self.pages_merged += u64::from(merged == Merged::Now);
        }
    }
}
