//! What is mapped: the areas of an address space, and the frames of their pages.

use std::ops::Range;

use mayfly_platform::memory::OutOfMemory;
use mayfly_stage2::Level;

use super::area::{Area, Areas, Kind};
use super::error::{Error, Fault};
use super::memory::{Protection, Resolved};
use super::pages::{Held, PageTable, Released, Store, chunks_of};

#[derive(Debug, Default)]
pub(super) struct Mappings {
    pub(super) areas: Areas,
    pub(super) pages: PageTable,
}

/// What has to happen before a page can be used as was asked.
pub(super) enum Obstacle {
    /// It is to be written, and shares its frame.
    Shared,
    /// It is just getting a frame of its own.
    Leaving,
    /// The page table has no place yet for what it has.
    NoPlace,
}

impl Mappings {
    /// Where `page` is, to be written or read.
    pub(super) fn resolve(
        &self,
        page: u64,
        write: bool,
        store: Store<'_>,
    ) -> Result<Result<Resolved, Obstacle>, Fault> {
        let (range, area) = self.areas.find(page).ok_or(Fault::NotMapped)?;
        let writable = area.protection == Protection::ReadWrite;
        if write && !writable {
            return Err(Fault::ReadOnly);
        }
        let there = |pfn, level, writable| Ok(Ok(Resolved { pfn, level, writable }));
        let (held, level) = match &area.kind {
            Kind::Contiguous(blocks) => {
                return there(blocks.frame(page), largest(page, &range, Level::GIB1), writable);
            }
            Kind::Shared(block) => {
                return there(block.frame(page), largest(page, &range, block.level), writable);
            }
            Kind::OnDemand { .. } => self.pages.bring_in(page, store)?,
            Kind::Image { .. } => match self.image_frame_in(area, page) {
                Some(frame) => (Held::Shared(frame), Level::PAGE),
                None if self.pages.has_place(page) => self.pages.bring_in(page, store)?,
                None => return Ok(Err(Obstacle::NoPlace)),
            },
        };
        match held {
            Held::Own(pfn) => there(pfn, level, writable),
            Held::Leaving => Ok(Err(Obstacle::Leaving)),
            Held::Shared(_) if write => Ok(Err(Obstacle::Shared)),
            Held::Shared(pfn) => there(pfn, level, false),
        }
    }

    /// The parts of `pages` that are mapped, in order.
    pub(super) fn mapped(&self, pages: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let (first, end) = (pages.start, pages.end);
        let areas = self.areas.overlapping(pages.clone());
        areas.map(move |(range, _)| range.start.max(first)..range.end.min(end))
    }

    /// Whether all of `pages` are mapped, and each has a frame of which the page table knows.
    pub(super) fn check_on_demand(&self, pages: &Range<u64>) -> Result<(), Error> {
        self.check(pages, |kind| matches!(kind, Kind::OnDemand { .. }))
    }

    /// Whether all of `pages` are mapped, and the page table knows what was written to each.
    pub(super) fn check_in_pages(&self, pages: &Range<u64>) -> Result<(), Error> {
        self.check(pages, Kind::is_in_pages)
    }

    /// Brings in what of `pages` is in swap.
    pub(super) fn bring_in_all(
        &self,
        pages: &Range<u64>,
        store: Store<'_>,
    ) -> Result<(), OutOfMemory> {
        for page in pages.clone().filter(|&page| self.pages.is_in_swap(page)) {
            self.pages.bring_in(page, store)?;
        }
        Ok(())
    }

    fn check(&self, pages: &Range<u64>, is_such: impl Fn(&Kind) -> bool) -> Result<(), Error> {
        if !self.areas.cover(pages.clone()) {
            return Err(Error::NotMapped);
        }
        if self.areas.overlapping(pages.clone()).all(|(_, area)| is_such(&area.kind)) {
            Ok(())
        } else {
            Err(Error::Invalid)
        }
    }

    /// Unmaps `pages`, and adds the frames that go to `released`.
    pub(super) fn unmap(&mut self, pages: Range<u64>, store: Store<'_>, released: &mut Released) {
        self.split(&pages);
        let taken = self.areas.take(pages);
        for (range, area) in &taken {
            match &area.kind {
                Kind::OnDemand { .. } | Kind::Image { .. } => {
                    self.pages.remove(range, store, released);
                }
                Kind::Contiguous(blocks) => released.extend(blocks.runs(range.clone())),
                Kind::Shared(_) => {}
            }
        }
        for (range, area) in taken {
            if area.kind.is_in_pages() {
                self.forget_chunks(&range);
            }
            area.kind.release(released);
        }
    }

    /// Forgets the chunks that had `pages`, which are in no area any more. Those at the ends may have pages of areas
    /// that stay.
    pub(super) fn forget_chunks(&mut self, pages: &Range<u64>) {
        let has_no_area =
            |chunk: &Range<u64>| self.areas.overlapping(chunk.clone()).next().is_none();
        self.pages.forget(chunks_of(pages).filter(has_no_area));
    }

    /// Gives `pages` another protection.
    pub(super) fn protect(&mut self, pages: Range<u64>, protection: Protection) {
        self.split(&pages);
        self.areas.protect(pages.clone(), protection);
        self.areas.join(pages.clone());
        for page in [pages.start, pages.end - 1] {
            if let Some((range, Area { kind: Kind::OnDemand { huge: true }, .. })) =
                self.areas.find(page)
            {
                let is_within =
                    |chunk: &Range<u64>| range.start <= chunk.start && chunk.end <= range.end;
                self.pages.join(chunks_of(&(page..page + 1)).filter(is_within));
            }
        }
    }

    /// Has areas and huge pages end where `pages` do.
    pub(super) fn split(&mut self, pages: &Range<u64>) {
        for page in [pages.start, pages.end] {
            self.areas.split(page);
            self.pages.split(page);
        }
    }
}

/// The largest level, `most` at most, whose block around `page` is within `range`.
fn largest(page: u64, range: &Range<u64>, most: Level) -> Level {
    let fits = |level: &Level| {
        let first = page - page % level.pages();
        *level <= most && range.start <= first && first + level.pages() <= range.end
    };
    [Level::GIB1, Level::MIB2].into_iter().find(fits).unwrap_or(Level::PAGE)
}
