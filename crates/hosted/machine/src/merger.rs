//! The page merger: makes pages that hold the same share one frame, as Linux's KSM does (`mm/ksm.c`; tunables and
//! statistics have the names of `/sys/kernel/mm/ksm`).
//!
//! [`Merger::scan_batch`] looks at the next [`pages_to_scan`](Tunables::pages_to_scan) pages of the ranges that were
//! [registered](Merger::register), as `MADV_MERGEABLE` does; a [`MergerThread`] does so again and again. Of each page:
//!
//! 1. Its contents are those of a frame in the *stable set*, of frames that nobody writes to: it is merged with that.
//! 2. Its checksum is not that of the last look: it changes, and is left alone until it stays the same (*volatile*).
//! 3. It is all zeroes, and [`use_zero_pages`](Tunables::use_zero_pages) is set: it is merged with the frame of zeroes.
//! 4. Its contents are those of a page in the *unstable set*, of pages that have stayed the same since the last look,
//!    but may be written at any moment: the other page's frame is closed to writes, goes to the stable set, and the
//!    page is merged with it.
//! 5. Otherwise it goes to the unstable set itself, which is forgotten when all ranges have been gone through.
//!
//! Both sets find contents by checksum, and compare word by word; nothing is merged that was not compared while nobody
//! could write to either. (Linux keeps both in trees that are ordered by contents. The unstable one can go out of order
//! when its pages are written; what is lost then is found in the next pass, as it is here.)
//!
//! Pages one after the other (of one range as it was registered) that are to be merged are merged together, up to
//! [`pages_to_merge`](Tunables::pages_to_merge) of them: one start and end for all, and TLBs are asked once to give up
//! writing. Linux takes each page by itself, with two starts and ends; so it is here, unless more is set.
//!
//! What TLBs are owed for the old frames is paid in passing, or for many pages together; and when a pass has merged
//! nothing, or nothing is to be merged any more.
//!
//! The stable set has a reference to each of its frames; those that no page shares any more are given up when a pass is
//! over, or pages are unmerged. Statistics count what shares a frame at that moment, and not at the scanner's last
//! look.

mod contents;
mod counts;
mod item;
mod stable;
mod thread;
mod tunables;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use mayfly_platform::address::{Hva, Pfn};
use mayfly_platform::memory::OutOfMemory;

use crate::HostSpace;
use crate::address_space::{Error, Fault, Looked, Merged, equal, whole_pages};
use crate::lock::lock;
use contents::checksum;
pub use counts::Statistics;
use item::{Items, Kind};
use stable::Stable;
pub use thread::MergerThread;
pub use tunables::{Run, Tunables};

/// A page merger of one address space.
#[derive(Debug)]
pub struct Merger {
    space: Arc<HostSpace>,
    tunables: Mutex<Tunables>,
    scan: Mutex<Scan>,
}

/// How far the scanner is.
#[derive(Debug, Default)]
struct Scan {
    items: Items,
    stable: Stable,
    /// Pages by the checksum of what they held when they were looked at in this pass.
    unstable: HashMap<u64, Vec<u64>>,
    /// The page that comes next.
    next: u64,
    full_scans: u64,
    pages_scanned: u64,
    pages_merged: u64,
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

impl Merger {
    /// With no ranges, and the tunables of a kernel that has just started; [`Run::Stop`] among them.
    pub fn new(space: Arc<HostSpace>) -> Self {
        Self { space, tunables: Mutex::default(), scan: Mutex::default() }
    }

    /// Lets pages of `range` be merged from now on, as `MADV_MERGEABLE` does.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`], also for memory that is there for good; [`Error::NotMapped`].
    pub fn register(&self, range: Range<Hva>) -> Result<(), Error> {
        let pages = whole_pages(&range)?;
        self.space.check_mergeable(&pages)?;
        self.scan().items.add(pages);
        Ok(())
    }

    /// Lets pages of `range` be merged no more, and gives those that are a frame of their own, as `MADV_UNMERGEABLE`
    /// does. To be called also for what is about to be unmapped: it is addresses that are registered, and what is
    /// mapped there later would be merged as well.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`]; [`Error::OutOfMemory`], with nothing registered any more, but some of it merged still.
    pub fn unregister(&self, range: Range<Hva>) -> Result<(), Error> {
        let pages = whole_pages(&range)?;
        let mut scan = self.scan();
        scan.items.remove(&pages);
        let mut mapped = self.space.mapped(&pages).into_iter();
        let unmerged = mapped.try_for_each(|pages| self.unmerge(&mut scan, pages));
        self.space.settle();
        scan.prune(&self.space);
        Ok(unmerged?)
    }

    /// The tunables.
    pub fn tunables(&self) -> Tunables {
        *lock(&self.tunables)
    }

    /// Sets the tunables. With [`Run::Unmerge`], every page that is merged has a frame of its own when this returns.
    ///
    /// # Errors
    ///
    /// Where there are not so many frames; the tunables are set, and some pages merged still.
    pub fn set(&self, tunables: Tunables) -> Result<(), OutOfMemory> {
        *lock(&self.tunables) = tunables;
        self.space.settle();
        if tunables.run == Run::Unmerge {
            let mut scan = self.scan();
            let mut ranges = scan.items.ranges().into_iter();
            let unmerged = ranges.try_for_each(|pages| self.unmerge(&mut scan, pages));
            scan.prune(&self.space);
            return unmerged;
        }
        Ok(())
    }

    /// Looks at the next [`Tunables::pages_to_scan`] pages, but at none twice, whatever [`Tunables::run`] says. Returns
    /// how many that were.
    pub fn scan_batch(&self) -> u64 {
        let mut scan = self.scan();
        let tunables = self.tunables();
        scan.batch(&self.space, &tunables)
    }

    /// Has a [`MergerThread`] do a batch, if it is to. Returns the pause after it.
    fn serve(&self) -> Option<Duration> {
        let mut scan = self.scan();
        // Asked under the scanner's lock: what was unmerged by `set` is not merged again when that has returned.
        let tunables = self.tunables();
        let has_scanned = tunables.run == Run::Merge && scan.batch(&self.space, &tunables) > 0;
        has_scanned.then(|| Duration::from_millis(tunables.sleep_millisecs))
    }

    /// Goes through all registered pages once, from wherever it is.
    pub fn scan_all(&self) {
        let before = self.scan().full_scans;
        while self.scan().full_scans == before {
            if self.scan_batch() == 0 {
                return;
            }
        }
    }

    /// What was done so far, and what is shared at this moment. Waits for a batch under way.
    pub fn statistics(&self) -> Statistics {
        let scan = self.scan();
        let shared = scan.stable.counts(self.space.arena());
        Statistics {
            pages_shared: shared.frames,
            pages_sharing: shared.pages - shared.frames,
            pages_unshared: scan.items.count(Kind::Unshared),
            pages_volatile: scan.items.count(Kind::Volatile),
            pages_scanned: scan.pages_scanned,
            pages_merged: scan.pages_merged,
            full_scans: scan.full_scans,
            ksm_zero_pages: self.space.zero_pages(),
            stable_node_chains: shared.chains,
            stable_node_dups: shared.duplicates,
        }
    }

    fn unmerge(&self, scan: &mut Scan, pages: Range<u64>) -> Result<(), OutOfMemory> {
        for page in pages {
            let merged = self.space.look(page, |found| found.shared).unwrap_or(false);
            match if merged { self.space.unshare(page) } else { Ok(()) } {
                // What may not be written keeps what it shares.
                Ok(()) | Err(Fault::NotMapped | Fault::ReadOnly) => {}
                Err(Fault::OutOfMemory(error)) => return Err(error),
            }
            scan.items.set(page, Kind::New);
        }
        Ok(())
    }

    fn scan(&self) -> MutexGuard<'_, Scan> {
        lock(&self.scan)
    }
}

impl Drop for Merger {
    /// Gives up its references; what is merged stays so.
    fn drop(&mut self) {
        self.scan().stable.clear(self.space.arena());
        self.space.settle();
    }
}

impl Scan {
    fn batch(&mut self, space: &HostSpace, tunables: &Tunables) -> u64 {
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

    fn prune(&mut self, space: &HostSpace) {
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
            && contents::is_zero(arena, frame)
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
