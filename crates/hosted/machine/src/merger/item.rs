//! What the merger knows of each page: Linux's `rmap_item`.

use std::collections::BTreeMap;
use std::ops::Range;

/// What a page was when it was last looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// Not looked at yet; or there was nothing.
    #[default]
    New,
    /// Other than the time before.
    Volatile,
    /// The same, and without an equal.
    Unshared,
    /// Merged.
    Merged,
}

const KINDS: usize = 4;

#[derive(Clone, Copy, Debug, Default)]
struct Item {
    checksum: Option<u64>,
    kind: Kind,
}

/// Ranges of pages, which do not overlap.
#[derive(Debug, Default)]
pub(super) struct Items {
    ranges: BTreeMap<u64, Vec<Item>>,
    counts: [u64; KINDS],
}

impl Items {
    /// Adds the pages that are not there yet.
    pub(super) fn add(&mut self, pages: Range<u64>) {
        let mut first = pages.start;
        while first < pages.end {
            if let Some(range) = self.range_of(first) {
                first = range.end;
                continue;
            }
            let next = self.ranges.range(first..).next().map_or(u64::MAX, |(next, _)| *next);
            let end = next.min(pages.end);
            self.ranges.insert(first, vec![Item::default(); (end - first) as usize]);
            self.counts[Kind::New as usize] += end - first;
            first = end;
        }
    }

    /// Takes out the pages that are there.
    pub(super) fn remove(&mut self, pages: &Range<u64>) {
        for at in [pages.start, pages.end] {
            if let Some(range) = self.range_of(at)
                && range.start < at
                && let Some(items) = self.ranges.get_mut(&range.start)
            {
                let rest = items.split_off((at - range.start) as usize);
                self.ranges.insert(at, rest);
            }
        }
        let within: Vec<u64> = self.ranges.range(pages.clone()).map(|(first, _)| *first).collect();
        for item in within.iter().filter_map(|first| self.ranges.remove(first)).flatten() {
            self.counts[item.kind as usize] -= 1;
        }
    }

    /// How many pages there are.
    pub(super) fn len(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// How many pages are of this kind.
    pub(super) fn count(&self, kind: Kind) -> u64 {
        self.counts[kind as usize]
    }

    pub(super) fn ranges(&self) -> Vec<Range<u64>> {
        self.ranges.iter().map(|(first, items)| *first..first + items.len() as u64).collect()
    }

    /// The first page that is not before `page`.
    pub(super) fn at_or_after(&self, page: u64) -> Option<u64> {
        match self.range_of(page) {
            Some(_) => Some(page),
            None => self.ranges.range(page..).next().map(|(first, _)| *first),
        }
    }

    /// Whether two pages are of one range as it was added.
    pub(super) fn are_together(&self, page: u64, other: u64) -> bool {
        self.range_of(page).is_some_and(|range| range.contains(&other))
    }

    /// Says what a page is, if it is there.
    pub(super) fn set(&mut self, page: u64, kind: Kind) {
        let Some(item) = self.item(page) else { return };
        let was = std::mem::replace(&mut item.kind, kind);
        self.counts[was as usize] -= 1;
        self.counts[kind as usize] += 1;
    }

    /// Notes a page's checksum, and gives the one before.
    pub(super) fn replace_checksum(&mut self, page: u64, sum: u64) -> Option<u64> {
        self.item(page)?.checksum.replace(sum)
    }

    fn item(&mut self, page: u64) -> Option<&mut Item> {
        let (first, items) = self.ranges.range_mut(..=page).next_back()?;
        items.get_mut((page - first) as usize)
    }

    fn range_of(&self, page: u64) -> Option<Range<u64>> {
        let (first, items) = self.ranges.range(..=page).next_back()?;
        let range = *first..first + items.len() as u64;
        range.contains(&page).then_some(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_added_twice_are_there_once_and_keep_what_is_known_of_them() {
        let mut items = Items::default();
        items.add(10..20);
        items.set(15, Kind::Merged);
        items.add(5..30);
        assert_eq!((items.len(), items.count(Kind::Merged)), (25, 1));
        items.remove(&(12..16));
        assert_eq!((items.len(), items.count(Kind::Merged)), (21, 0));
        assert_eq!(items.ranges(), [5..10, 10..12, 16..20, 20..30]);
        assert!(items.are_together(10, 11) && !items.are_together(9, 10));
        assert_eq!((items.at_or_after(11), items.at_or_after(12)), (Some(11), Some(16)));
        assert_eq!(items.at_or_after(30), None);
    }

    #[test]
    fn a_checksum_is_given_back_at_the_next_look() {
        let mut items = Items::default();
        items.add(0..1);
        assert_eq!(items.replace_checksum(0, 7), None);
        assert_eq!(items.replace_checksum(0, 8), Some(7));
        assert_eq!(items.replace_checksum(1, 8), None);
    }
}
