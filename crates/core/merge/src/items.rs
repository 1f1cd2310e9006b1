//! What the merger knows of each page: Linux's `rmap_item`, in four bytes.

use alloc::vec::Vec;
use core::ops::Range;

use mayfly_platform::memory::OutOfMemory;

use crate::Group;
use crate::pieces::Pieces;

/// What a page was when it was last looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Not looked at yet; or there was nothing.
    New,
    /// Other than the time before.
    Volatile,
    /// The same, and without an equal.
    Unshared,
    /// Merged.
    Merged,
}

impl Kind {
    const ALL: [Self; KINDS] = [Self::New, Self::Volatile, Self::Unshared, Self::Merged];
}

const KINDS: usize = 4;
/// Pages between two pauses.
const FEW: usize = 128;

/// The kind of a page; in how many looks, one after the other, it had no equal; and what is remembered of the sum of the last look:
/// nothing, or a number that is not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Item(u32);

impl Item {
    const NEW: Self = Self(Kind::New as u32);
    const KIND_BITS: u32 = 2;
    const LOOKS_BITS: u32 = 4;
    /// Where what is remembered of the sum begins.
    const SUM_SHIFT: u32 = Self::KIND_BITS + Self::LOOKS_BITS;
    /// As many as a page counts that changes: it is looked at in every second pass, so that it is soon known when that is over.
    const MOST_VOLATILE: u32 = 5;
    /// As many looks as it counts.
    const MOST_LOOKS: u32 = (1 << Self::LOOKS_BITS) - 1;

    fn kind(self) -> Kind {
        Kind::ALL[(self.0 & 3) as usize]
    }

    const fn looks(self) -> u32 {
        self.0 >> Self::KIND_BITS & Self::MOST_LOOKS
    }

    /// In one of so many passes it is looked at, unless `most` are fewer.
    fn passes(self, most: u64) -> u64 {
        let passes = match self.looks() {
            0..=2 => 1,
            3..=5 => 2,
            6..=8 => 4,
            _ => 8,
        };
        passes.min(most)
    }

    /// What is remembered of a sum. Two that differ seldom have it in common; then a page counts as unchanged that has
    /// changed, which costs a comparison.
    const fn short(sum: u64) -> u32 {
        let short = (sum >> (32 + Self::SUM_SHIFT)) as u32;
        if short == 0 { 1 } else { short }
    }
}

/// A page that is there, and in which range. It is so as long as no pages are added or taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At {
    range: usize,
    pub(crate) page: u64,
}

#[derive(Debug)]
struct Pages {
    first: u64,
    group: Group,
    items: Pieces<Item>,
}

impl Pages {
    fn all(&self) -> Range<u64> {
        self.first..self.first + self.items.len() as u64
    }
}

/// Ranges of pages, which do not overlap.
#[derive(Debug, Default)]
pub(crate) struct Items {
    /// In order.
    ranges: Vec<Pages>,
    counts: [u64; KINDS],
}

impl Items {
    /// Adds the pages that are not there yet. Where memory ends, some of them.
    pub(crate) fn try_add(
        &mut self,
        group: Group,
        pages: Range<u64>,
        mut pause: impl FnMut(),
    ) -> Result<(), OutOfMemory> {
        let mut first = pages.start;
        while first < pages.end {
            let at = self.first_ending_after(first);
            let next = self.ranges.get(at).map(Pages::all);
            if let Some(next) = next.clone().filter(|next| next.start <= first) {
                first = next.end;
                continue;
            }
            let end = next.map_or(pages.end, |next| next.start.min(pages.end));
            self.ranges.try_reserve(1).map_err(|_| OutOfMemory)?;
            let count = usize::try_from(end - first).map_err(|_| OutOfMemory)?;
            let items = Pieces::try_filled(Item::NEW, count, &mut pause)?;
            self.ranges.insert(at, Pages { first, group, items });
            self.counts[Kind::New as usize] += end - first;
            first = end;
        }
        Ok(())
    }

    /// Takes out the pages that are there.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`], where a range is to be parted: all pages are there still.
    pub(crate) fn try_remove(
        &mut self,
        pages: &Range<u64>,
        mut pause: impl FnMut(),
    ) -> Result<(), OutOfMemory> {
        for at in [pages.start, pages.end] {
            self.part(at, &mut pause)?;
        }
        let from = self.first_ending_after(pages.start);
        let within = self.ranges[from..].partition_point(|range| range.first < pages.end);
        for mut range in self.ranges.drain(from..from + within) {
            for at in 0..range.items.len() {
                self.counts[range.items.get(at).kind() as usize] -= 1;
                if at.is_multiple_of(FEW) {
                    pause();
                }
            }
            range.items.clear(&mut pause);
        }
        Ok(())
    }

    /// How many pages there are.
    pub(crate) fn len(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// How many pages are of this kind.
    pub(crate) fn count(&self, kind: Kind) -> u64 {
        self.counts[kind as usize]
    }

    /// The first range that ends after `page`.
    pub(crate) fn range_after(&self, page: u64) -> Option<Range<u64>> {
        self.ranges.get(self.first_ending_after(page)).map(Pages::all)
    }

    /// The first page that is not before `page`.
    pub(crate) fn at_or_after(&self, page: u64) -> Option<At> {
        self.at_or_after_in(self.first_ending_after(page), page)
    }

    /// The page behind one.
    pub(crate) fn after(&self, at: At) -> Option<At> {
        let is_last = at.page + 1 == self.ranges[at.range].all().end;
        self.at_or_after_in(at.range + usize::from(is_last), at.page + 1)
    }

    fn at_or_after_in(&self, range: usize, page: u64) -> Option<At> {
        self.ranges.get(range).map(|pages| At { range, page: pages.first.max(page) })
    }

    /// A page, if it is there.
    pub(crate) fn find(&self, page: u64) -> Option<At> {
        self.at_or_after(page).filter(|at| at.page == page)
    }

    /// The group of a page.
    pub(crate) fn group(&self, at: At) -> Group {
        self.ranges[at.range].group
    }

    /// Whether a page is to be looked at in a pass of that number. One that had no equal in many looks is so in one of `most` passes,
    /// a power of two: in the same passes as all such pages, so that these meet.
    pub(crate) fn is_due(&self, at: At, pass: u64, most: u64) -> bool {
        let pages = &self.ranges[at.range];
        let item = pages.items.get((at.page - pages.first) as usize);
        pass.is_multiple_of(item.passes(most))
    }

    /// Whether two pages are of one range as it was added.
    pub(crate) fn are_together(&self, page: u64, other: u64) -> bool {
        self.find(page).is_some_and(|at| self.ranges[at.range].all().contains(&other))
    }

    /// Says what a page is.
    pub(crate) fn set(&mut self, at: At, kind: Kind) {
        let looks = self.item(at).looks();
        let looks = match kind {
            Kind::New | Kind::Merged => 0,
            Kind::Volatile => (looks + 1).min(Item::MOST_VOLATILE),
            Kind::Unshared => (looks + 1).min(Item::MOST_LOOKS),
        };
        self.put(at, kind, looks);
    }

    /// Says that a page has had no equal, but was compared with too few to know: this counts as no look.
    pub(crate) fn set_unsure(&mut self, at: At) {
        let looks = self.item(at).looks();
        self.put(at, Kind::Unshared, looks);
    }

    fn put(&mut self, at: At, kind: Kind, looks: u32) {
        let item = self.item(at);
        let was = item.kind();
        let sum = item.0 >> Item::SUM_SHIFT << Item::SUM_SHIFT;
        item.0 = sum | looks << Item::KIND_BITS | kind as u32;
        self.counts[was as usize] -= 1;
        self.counts[kind as usize] += 1;
    }

    /// Notes a page's sum. Returns whether it was the same at the look before.
    pub(crate) fn stays_the_same(&mut self, at: At, sum: u64) -> bool {
        let item = self.item(at);
        let (before, now) = (item.0 >> Item::SUM_SHIFT, Item::short(sum));
        item.0 = now << Item::SUM_SHIFT | item.0 & ((1 << Item::SUM_SHIFT) - 1);
        before == now
    }

    /// Has a range begin at `at`, if one goes over it.
    fn part(&mut self, at: u64, mut pause: impl FnMut()) -> Result<(), OutOfMemory> {
        let number = self.first_ending_after(at);
        let Some(range) = self.ranges.get(number).filter(|range| range.first < at) else {
            return Ok(());
        };
        let stays = (at - range.first) as usize;
        let mut rest = Pieces::default();
        for index in stays..range.items.len() {
            rest.try_push(range.items.get(index))?;
            if index.is_multiple_of(FEW) {
                pause();
            }
        }
        let group = range.group;
        self.ranges.try_reserve(1).map_err(|_| OutOfMemory)?;
        self.ranges[number].items.truncate(stays);
        self.ranges.insert(number + 1, Pages { first: at, group, items: rest });
        Ok(())
    }

    fn item(&mut self, at: At) -> &mut Item {
        let pages = &mut self.ranges[at.range];
        pages.items.get_mut((at.page - pages.first) as usize)
    }

    fn first_ending_after(&self, page: u64) -> usize {
        self.ranges.partition_point(|range| range.all().end <= page)
    }
}

#[cfg(test)]
mod tests {
    use std::vec;

    use super::*;

    const ONE: Group = Group(1);

    fn ranges(items: &Items) -> Vec<Range<u64>> {
        let next = |range: &Range<u64>| items.range_after(range.end);
        core::iter::successors(items.range_after(0), next).collect()
    }

    #[test]
    fn pages_added_twice_are_there_once_and_keep_what_is_known_of_them() {
        let mut items = Items::default();
        items.try_add(ONE, 10..20, || ()).unwrap();
        items.set(items.find(15).unwrap(), Kind::Merged);
        items.try_add(Group(2), 5..30, || ()).unwrap();
        assert_eq!((items.len(), items.count(Kind::Merged)), (25, 1));
        let group = |items: &Items, page| items.find(page).map(|at| items.group(at));
        assert_eq!(
            [9, 10, 20].map(|page| group(&items, page)),
            [2, 1, 2].map(|it| Some(Group(it)))
        );
        items.try_remove(&(12..16), || ()).unwrap();
        assert_eq!((items.len(), items.count(Kind::Merged)), (21, 0));
        assert_eq!(ranges(&items), [5..10, 10..12, 16..20, 20..30]);
        assert!(items.are_together(10, 11) && !items.are_together(9, 10));
        let page = |at: Option<At>| at.map(|at| at.page);
        assert_eq!([11, 12].map(|from| page(items.at_or_after(from))), [Some(11), Some(16)]);
        assert_eq!(
            [10, 11].map(|from| page(items.after(items.find(from).unwrap()))),
            [Some(11), Some(16)]
        );
        assert_eq!((items.at_or_after(30), items.after(items.find(29).unwrap())), (None, None));
        assert_eq!(items.find(13), None);
    }

    #[test]
    fn a_page_is_the_same_if_it_was_so_at_the_look_before() {
        let mut items = Items::default();
        items.try_add(ONE, 0..1, || ()).unwrap();
        let sums = [0, 0, 7 << 40, 7 << 40, 0];
        let at = items.find(0).unwrap();
        let same = sums.map(|sum| items.stays_the_same(at, sum));
        assert_eq!(same, [false, true, false, true, false]);
    }

    #[test]
    fn the_longer_a_page_has_no_equal_the_fewer_passes_look_at_it_and_all_such_pages_meet() {
        let mut items = Items::default();
        items.try_add(ONE, 0..2, || ()).unwrap();
        let (at, other) = (items.find(0).unwrap(), items.find(1).unwrap());
        assert!(items.stays_the_same(at, 7 << 50) != items.stays_the_same(at, 7 << 50));
        let mut looks = 0;
        for pass in 0..200 {
            // The other one comes later.
            for (at, from) in [(at, 0), (other, 61)] {
                if pass >= from && items.is_due(at, pass, 8) {
                    items.set(at, Kind::Unshared);
                    looks += u32::from(at.page == 0);
                }
            }
            assert!(items.is_due(at, pass, 1), "in each pass, if no more are between");
        }
        assert!((9 + 17..9 + 27).contains(&looks), "{looks}");
        let due = |at| (200..216).filter(|&pass| items.is_due(at, pass, 8)).collect::<Vec<_>>();
        assert_eq!((due(at), due(other)), (vec![200, 208], vec![200, 208]));
        assert!(items.stays_the_same(at, 7 << 50), "what is remembered of its sum stays");
        assert_eq!(items.count(Kind::Unshared) + items.count(Kind::Volatile), 2);
        items.set(at, Kind::Merged);
        assert!(items.is_due(at, 201, 8));
        (0..20).for_each(|_| items.set(at, Kind::Volatile));
        assert_eq!([201, 202].map(|pass| items.is_due(at, pass, 8)), [false, true]);
        (0..20).for_each(|_| items.set_unsure(other));
        items.set(other, Kind::New);
        (0..20).for_each(|_| items.set_unsure(other));
        assert!(items.is_due(other, 201, 8), "it was compared with too few");
    }
}
