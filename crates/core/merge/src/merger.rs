//! The scanner: what it does with each page that it looks at.

use alloc::vec::Vec;
use core::ops::Range;

use mayfly_platform::address::Pfn;
use mayfly_platform::memory::OutOfMemory;

use crate::host::{Host, Looked, Merged};
use crate::index::{Index, Key};
use crate::items::{At, Items, Kind};
use crate::statistics::Statistics;
use crate::{Group, Limits};

/// Entries of one sum that are gone through in a look at a page. There may be many pages of one sum that hold the same: of a
/// volatile page, or of more than may share a frame.
const MOST_VISITED: usize = 64;
/// Of these, how many are compared.
const MOST_COMPARED: usize = 8;

/// Pages that are merged, and how far that is.
#[derive(Debug, Default)]
pub struct Merger {
    items: Items,
    /// Frames, each with a reference of the merger's own.
    stable: Index,
    /// Pages, by what they held when they were looked at in this pass.
    unstable: Index,
    /// The page that comes next.
    next: u64,
    full_scans: u64,
    pages_scanned: u64,
    pages_skipped: u64,
    pages_merged: u64,
    /// How many those were when the last pass was over.
    merged_before: u64,
    /// In a pass that looks at all pages, those before this one do not wait for an equal: there was no room for the others in
    /// the last such pass.
    room_from: u64,
    /// The first page for which there was no room in this one.
    refused: Option<u64>,
    run: PageRun,
}

/// Pages one after the other, that go to be merged together.
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

    /// Pages that are going to share `frame`.
    fn coming(&self, frame: Pfn) -> u64 {
        self.merging.iter().filter(|&&coming| coming == frame).count() as u64
    }
}

/// Whether an index has as many of a key as are visited: one more would not be found, and makes others take longer.
fn is_crowded(index: &Index, key: Key) -> bool {
    index.all(key).nth(MOST_VISITED - 1).is_some()
}

impl Merger {
    /// Of no pages.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets `pages` be merged with others of `group` from now on. Those that are there already stay in the group that they
    /// are in.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`]. Some of them may be there then.
    pub fn register(
        &mut self,
        host: &impl Host,
        group: Group,
        pages: Range<u64>,
    ) -> Result<(), OutOfMemory> {
        self.items.try_add(group, pages, || host.pause())
    }

    /// Lets `pages` be merged no more. What is merged stays so.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`], where a range is to be parted; it never is if the range was registered as a whole. Then all pages are
    /// registered still.
    pub fn unregister(&mut self, host: &impl Host, pages: &Range<u64>) -> Result<(), OutOfMemory> {
        self.items.try_remove(pages, || host.pause())
    }

    /// The first range of pages that ends after `page`.
    pub fn range_after(&self, page: u64) -> Option<Range<u64>> {
        self.items.range_after(page)
    }

    /// How many pages are registered.
    pub fn pages(&self) -> u64 {
        self.items.len()
    }

    /// How many stable frames there are.
    pub fn stable_frames(&self) -> u64 {
        self.stable.len() as u64
    }

    /// How often all pages have been gone through.
    pub fn full_scans(&self) -> u64 {
        self.full_scans
    }

    /// `page` is not merged any more.
    pub fn unmerged(&mut self, page: u64) {
        if let Some(at) = self.items.find(page) {
            self.items.set(at, Kind::New);
        }
    }

    /// Goes through the next pages, until it has looked at the contents of `most` ([or of what counts as
    /// one](Limits::pages_a_look)), and at none twice. Returns how many that were. A pass is over when all have been gone through.
    pub fn scan(&mut self, host: &impl Host, limits: &Limits, most: u64) -> u64 {
        if self.items.len() == 0 {
            // No pass will be over.
            host.settle();
            self.prune(host);
        }
        let (all, mut through, mut looks, mut light) = (self.items.len(), 0, 0, 0);
        let mut next = self.items.at_or_after(self.next);
        while looks < most && through < all {
            let Some(at) = next else {
                self.end_pass(host, limits);
                next = self.items.at_or_after(0);
                continue;
            };
            let has_looked = self.look_at(at, host, limits);
            light += u64::from(!has_looked);
            if has_looked || light.is_multiple_of(limits.pages_a_look) {
                looks += 1;
            }
            through += 1;
            next = self.items.after(at);
            self.next = at.page + 1;
            host.pause();
        }
        if through > 0 && next.is_none() {
            self.end_pass(host, limits);
        }
        self.flush(host);
        through
    }

    /// Gives up the stable frames that no page has.
    pub fn prune(&mut self, host: &impl Host) {
        host.while_settled(&mut || {
            let stays = |frame| {
                let stays = host.references(Pfn::new(frame)) > 1;
                if !stays {
                    host.put(Pfn::new(frame));
                }
                stays
            };
            self.stable.retain(stays, || host.pause());
        });
    }

    /// Gives up all stable frames, and forgets which pages may have an equal. What is merged stays so, and is not merged with
    /// others any more.
    pub fn give_up(&mut self, host: &impl Host) {
        let gives_up = |frame| {
            host.put(Pfn::new(frame));
            false
        };
        self.stable.retain(gives_up, || host.pause());
        self.stable.clear(|| host.pause());
        self.unstable.clear(|| host.pause());
    }

    /// What was done so far, and what is shared at this moment. Takes a time that grows with the stable frames.
    pub fn statistics(&self, host: &impl Host) -> Statistics {
        let mut statistics = Statistics {
            pages_unshared: self.items.count(Kind::Unshared),
            pages_volatile: self.items.count(Kind::Volatile),
            pages_scanned: self.pages_scanned,
            pages_skipped: self.pages_skipped,
            pages_merged: self.pages_merged,
            full_scans: self.full_scans,
            ksm_zero_pages: host.zero_pages(),
            ..Statistics::default()
        };
        self.stable.for_each_key(|frames| {
            let mut nodes = 0;
            for pages in frames.map(|frame| host.references(Pfn::new(frame)) - 1) {
                nodes += u64::from(pages > 0);
                statistics.pages_sharing += pages.saturating_sub(1);
                host.pause();
            }
            statistics.pages_shared += nodes;
            if nodes > 1 {
                statistics.stable_node_chains += 1;
                statistics.stable_node_dups += nodes;
            }
        });
        statistics
    }

    fn end_pass(&mut self, host: &impl Host, limits: &Limits) {
        self.flush(host);
        self.next = 0;
        if self.looks_at_all(limits) {
            self.room_from = self.refused.take().unwrap_or(0);
        }
        self.full_scans += 1;
        self.unstable.clear(|| host.pause());
        if self.pages_merged == self.merged_before {
            // Nothing more comes that would pay in passing.
            host.settle();
        }
        self.merged_before = self.pages_merged;
        self.prune(host);
    }

    /// Goes through a page. Returns whether it has looked at what that holds.
    fn look_at(&mut self, at: At, host: &impl Host, limits: &Limits) -> bool {
        let page = at.page;
        if host.is_merged(page) {
            self.pages_scanned += 1;
            self.items.set(at, Kind::Merged);
            return false;
        }
        if !self.items.is_due(at, self.full_scans, limits.most_passes) {
            self.pages_skipped += 1;
            return false;
        }
        self.pages_scanned += 1;
        let Some(looked) = host.look(page) else {
            // It has no frame: nothing to save.
            self.items.set(at, Kind::New);
            return false;
        };
        host.pause();
        self.go_on_with(at, &looked, host, limits);
        true
    }

    /// Does with a page what is to be done, by what it holds.
    fn go_on_with(
        &mut self,
        at: At,
        &Looked { frame, shared, sum }: &Looked,
        host: &impl Host,
        limits: &Limits,
    ) {
        let page = at.page;
        let key = Key { group: self.items.group(at), sum };
        if shared && (self.is_stable(key, frame) || host.is_zero_frame(frame)) {
            let would_part = !self.run.merging.is_empty() && self.run.is_next(page, &self.items);
            if would_part && self.run.frames.try_reserve(1).is_ok() {
                // So that it does not part those before from those behind.
                self.run.frames.push(frame);
            }
            return self.items.set(at, Kind::Merged);
        }
        if let Some(with) = self.find_stable(key, page, host, limits) {
            return self.merge(page, with, host, limits);
        }
        if !self.items.stays_the_same(at, sum) {
            return self.items.set(at, Kind::Volatile);
        }
        if let Some(zero) = host.zero_frame(sum) {
            return self.merge(page, zero, host, limits);
        }
        if let Some(with) = self.promote(key, (page, frame), host, limits) {
            return self.merge(page, with, host, limits);
        }
        let looks_at_all = self.looks_at_all(limits);
        if looks_at_all && page < self.room_from {
            return self.items.set_unsure(at);
        }
        if !self.has_room(limits) {
            if looks_at_all {
                self.refused.get_or_insert(page);
            }
            return self.items.set_unsure(at);
        }
        if !is_crowded(&self.unstable, key) {
            // If there is no memory for it, it is left out of this pass.
            let _ = self.unstable.try_insert(key, page, || host.pause());
        }
        self.items.set(at, Kind::Unshared);
    }

    /// Whether this is a pass in which all pages are looked at.
    fn looks_at_all(&self, limits: &Limits) -> bool {
        self.full_scans.is_multiple_of(limits.most_passes)
    }

    fn has_room(&self, limits: &Limits) -> bool {
        let found = (self.stable.len() + self.unstable.len()) as u64;
        found < self.items.len() / limits.pages_a_find
    }

    fn is_stable(&self, key: Key, frame: Pfn) -> bool {
        self.stable.all(key).any(|(_, stable)| Pfn::new(stable) == frame)
    }

    /// A stable frame that holds the same as `page`, and has room for it.
    fn find_stable(&self, key: Key, page: u64, host: &impl Host, limits: &Limits) -> Option<Pfn> {
        let holds = |frame| {
            let holds = host.holds(page, frame);
            host.pause();
            holds
        };
        let has_room = |&frame: &Pfn| {
            let pages = host.references(frame) - 1;
            pages + self.run.coming(frame) < limits.max_page_sharing
        };
        let frames = self.stable.all(key).take(MOST_VISITED).map(|(_, frame)| Pfn::new(frame));
        let mut some = frames.filter(has_room).take(MOST_COMPARED);
        some.find(|&frame| holds(frame))
    }

    /// Makes the frame of an unstable page that holds the same as `page`, which is in `frame`, a stable one.
    fn promote(
        &mut self,
        key: Key,
        (page, frame): (u64, Pfn),
        host: &impl Host,
        limits: &Limits,
    ) -> Option<Pfn> {
        // Something else may be where a page was when it was looked at; or it may not be registered any more, or in another
        // group.
        let group = |other| self.items.find(other).map(|at| self.items.group(at));
        let is_another = |other| other != page && group(other) == Some(key.group);
        let found = |other| {
            let its = host.frame(other)?;
            // Forks of the page may have its frame.
            let has_room = host.references(its) < limits.max_page_sharing;
            let is_shared = self.is_stable(key, its) || host.is_zero_frame(its);
            (its != frame && !is_shared && has_room).then_some(its)
        };
        let others = self.unstable.all(key).take(MOST_VISITED);
        let mut candidates = others
            .filter(|&(_, other)| is_another(other))
            .filter_map(|(place, other)| Some((place, other, found(other)?)))
            .take(MOST_COMPARED);
        let is_equal = |other| {
            let is_equal = host.equal(other, page);
            host.pause();
            is_equal
        };
        let found = candidates.find(|&(_, other, _)| is_equal(other));
        drop(candidates);
        let (place, other, its) = found.filter(|_| !is_crowded(&self.stable, key))?;
        self.unstable.remove(key, place);
        let stable = host.close(key.group, other, its, key.sum)?;
        if self.stable.try_insert(key, stable.get(), || host.pause()).is_err() {
            host.put(stable);
            return None;
        }
        if let Some(other) = self.items.find(other) {
            self.items.set(other, Kind::Merged);
        }
        Some(stable)
    }

    /// Merges `page`, now or with those that come next.
    fn merge(&mut self, page: u64, with: Pfn, host: &impl Host, limits: &Limits) {
        if !self.run.merging.is_empty() && !self.run.is_next(page, &self.items) {
            self.flush(host);
        }
        let PageRun { first, frames, merging } = &mut self.run;
        if merging.is_empty() {
            *first = page;
        }
        if frames.try_reserve(1).is_err() || merging.try_reserve(1).is_err() {
            return self.flush(host);
        }
        frames.push(with);
        merging.push(with);
        if merging.len() as u64 >= limits.pages_to_merge {
            self.flush(host);
        }
    }

    /// Merges what was put aside.
    fn flush(&mut self, host: &impl Host) {
        if self.run.merging.is_empty() {
            return;
        }
        let PageRun { first, frames, .. } = &self.run;
        let (mut page, items, merged) = (*first, &mut self.items, &mut self.pages_merged);
        host.merge(page, frames, &mut |became| {
            if let Some(at) = items.find(page) {
                items.set(at, if became == Merged::No { Kind::Volatile } else { Kind::Merged });
            }
            *merged += u64::from(became == Merged::Now);
            page += 1;
        });
        self.run.frames.clear();
        self.run.merging.clear();
    }
}
