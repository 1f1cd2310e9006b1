//! What is mapped where: Linux's VMAs. Addresses are page numbers here.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use mayfly_platform::address::Pfn;
use mayfly_stage2::Level;

use super::image::Image;
use super::memory::Protection;
use super::pages::Released;

/// The pages that areas may have: 16 TiB up to 128 TiB, where a process has its own.
const PAGES: Range<u64> = 1 << 32..1 << 35;

/// A range of pages with one protection.
#[derive(Debug)]
pub(super) struct Area {
    pub(super) end: u64,
    pub(super) protection: Protection,
    pub(super) kind: Kind,
}

/// Where an area's frames come from.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// From the page table, which is filled as pages are touched: 2 MiB at once where `huge`.
    OnDemand { huge: bool },
    /// From blocks that it had from the beginning.
    Contiguous(Arc<Blocks>),
    /// From one block, again and again.
    Shared(Arc<Block>),
    /// From an image, until it is written, and then from the page table. The image's first page is behind page `origin`.
    Image { image: Arc<Image>, origin: u64 },
}

/// Blocks of 1 GiB (the last may be less), for an area that began at page `origin`.
#[derive(Debug)]
pub(super) struct Blocks {
    pub(super) origin: u64,
    pub(super) first: Vec<Pfn>,
}

/// A block that stands for every aligned block of its level.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) first: Pfn,
    pub(super) level: Level,
}

impl Blocks {
    /// The frame of `page`.
    pub(super) fn frame(&self, page: u64) -> Pfn {
        let (block, offset) = (
            (page - self.origin) / Level::GIB1.pages(),
            (page - self.origin) % Level::GIB1.pages(),
        );
        Pfn::new(self.first[block as usize].get() + offset)
    }

    /// The frames of `pages`, in runs.
    pub(super) fn runs(&self, mut pages: Range<u64>) -> impl Iterator<Item = (Pfn, u64)> {
        std::iter::from_fn(move || {
            let first = pages.next()?;
            let in_block = Level::GIB1.pages() - (first - self.origin) % Level::GIB1.pages();
            pages.start = pages.end.min(first + in_block);
            Some((self.frame(first), pages.start - first))
        })
    }
}

impl Block {
    /// The frame of `page`.
    pub(super) fn frame(&self, page: u64) -> Pfn {
        Pfn::new(self.first.get() + page % self.level.pages())
    }
}

impl Kind {
    /// Whether the page table knows what was written to its pages.
    pub(super) const fn is_in_pages(&self) -> bool {
        matches!(self, Self::OnDemand { .. } | Self::Image { .. })
    }

    /// Adds to `released` what goes with the last area that has it.
    pub(super) fn release(self, released: &mut Released) {
        match self {
            Self::OnDemand { .. } | Self::Contiguous(_) => {}
            Self::Shared(block) => {
                let last = Arc::into_inner(block);
                released.extend(last.map(|block| (block.first, block.level.pages())));
            }
            Self::Image { image, .. } => {
                if let Some(mut last) = Arc::into_inner(image) {
                    released.extend(last.take());
                }
            }
        }
    }
}

impl Area {
    /// Whether `other`, that begins where this ends, is the same but for its range.
    fn goes_on_with(&self, other: &Self) -> bool {
        let same_kind = match (&self.kind, &other.kind) {
            (Kind::OnDemand { huge }, Kind::OnDemand { huge: other }) => huge == other,
            (Kind::Contiguous(blocks), Kind::Contiguous(other)) => Arc::ptr_eq(blocks, other),
            (Kind::Shared(block), Kind::Shared(other)) => Arc::ptr_eq(block, other),
            (Kind::Image { image, origin }, Kind::Image { image: other, origin: beside }) => {
                Arc::ptr_eq(image, other) && origin == beside
            }
            _ => false,
        };
        self.protection == other.protection && same_kind
    }
}

/// The areas of an address space, by their first page. They do not overlap.
#[derive(Debug, Default)]
pub(super) struct Areas {
    areas: BTreeMap<u64, Area>,
}

impl Areas {
    /// The area that `page` is in, and its range.
    pub(super) fn find(&self, page: u64) -> Option<(Range<u64>, &Area)> {
        let (first, area) = self.areas.range(..=page).next_back()?;
        (page < area.end).then_some((*first..area.end, area))
    }

    /// The lowest page, a multiple of `align`, from which on `count` pages are in no area.
    pub(super) fn gap(&self, count: u64, align: u64) -> Option<u64> {
        let mut page = PAGES.start;
        for (first, area) in &self.areas {
            if page + count <= *first {
                break;
            }
            page = area.end.next_multiple_of(align);
        }
        (page + count <= PAGES.end).then_some(page)
    }

    /// Whether areas may have `pages`, and none has any of them.
    pub(super) fn are_free(&self, pages: Range<u64>) -> bool {
        let may_be_had = PAGES.start <= pages.start && pages.end <= PAGES.end;
        may_be_had && self.overlapping(pages).next().is_none()
    }

    /// Adds an area where none is.
    pub(super) fn insert(&mut self, first: u64, area: Area) {
        self.areas.insert(first, area);
    }

    /// The areas that overlap `pages`, in order.
    pub(super) fn overlapping(
        &self,
        pages: Range<u64>,
    ) -> impl Iterator<Item = (Range<u64>, &Area)> {
        let first = self.find(pages.start).map_or(pages.start, |(range, _)| range.start);
        self.areas.range(first..pages.end).map(|(first, area)| (*first..area.end, area))
    }

    /// Whether every one of `pages` is in an area.
    pub(super) fn cover(&self, pages: Range<u64>) -> bool {
        let reached =
            self.overlapping(pages.clone()).try_fold(pages.start, |reached, (area, _)| {
                (area.start <= reached).then_some(area.end)
            });
        reached.is_some_and(|reached| reached >= pages.end)
    }

    /// Lets no area reach across the beginning of `page`.
    pub(super) fn split(&mut self, page: u64) {
        let Some((_, area)) = self.areas.range_mut(..page).next_back() else { return };
        if area.end > page {
            let rest = Area { end: area.end, protection: area.protection, kind: area.kind.clone() };
            area.end = page;
            self.areas.insert(page, rest);
        }
    }

    /// Takes out the areas within `pages`, to whose ends it has been split.
    pub(super) fn take(&mut self, pages: Range<u64>) -> Vec<(Range<u64>, Area)> {
        let within: Vec<_> =
            self.areas.range(pages).map(|(first, area)| *first..area.end).collect();
        within
            .into_iter()
            .filter_map(|range| Some((range.clone(), self.areas.remove(&range.start)?)))
            .collect()
    }

    /// Has the areas within `pages`, to whose ends it has been split, get their frames from `kind`. Returns where they got
    /// them from before.
    pub(super) fn change_kinds(
        &mut self,
        pages: Range<u64>,
        kind: &Kind,
    ) -> impl Iterator<Item = Kind> {
        let areas = self.areas.range_mut(pages);
        areas.map(|(_, area)| std::mem::replace(&mut area.kind, kind.clone()))
    }

    /// Protects the areas within `pages`, to whose ends it has been split.
    pub(super) fn protect(&mut self, pages: Range<u64>, protection: Protection) {
        for (_, area) in self.areas.range_mut(pages) {
            area.protection = protection;
        }
    }

    /// Joins areas that meet within `pages`, or at either end of it, and do not differ.
    pub(super) fn join(&mut self, pages: Range<u64>) {
        let seams: Vec<_> =
            self.areas.range(pages.start..=pages.end).map(|(first, _)| *first).collect();
        for seam in seams {
            let (Some(area), Some((_, before))) =
                (self.areas.get(&seam), self.areas.range(..seam).next_back())
            else {
                continue;
            };
            if before.end == seam && before.goes_on_with(area) {
                let end = area.end;
                self.areas.remove(&seam);
                if let Some((_, before)) = self.areas.range_mut(..seam).next_back() {
                    before.end = end;
                }
            }
        }
    }
}
