//! Regions of numbered things, frames or chunks of them, and the place of each thing in a list that has those of one region
//! after those of another, whatever numbers are between them.
//!
//! A machine may have memory at 2 GiB and at 4 TiB. What is known of each chunk of it takes as much memory as there are
//! chunks, and not as there are addresses.

use core::ops::Range;

/// The things of one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    first: u64,
    count: u64,
    /// Of the first, in the list.
    place: u64,
}

impl Span {
    /// Those with these numbers; `place` is how many are in the list before them.
    pub const fn new(numbers: Range<u64>, place: u64) -> Self {
        Self { first: numbers.start, count: numbers.end.saturating_sub(numbers.start), place }
    }

    /// Their numbers.
    pub const fn numbers(&self) -> Range<u64> {
        self.first..self.first + self.count
    }

    /// How many there are in the list up to the last of them.
    pub const fn end(&self) -> u64 {
        self.place + self.count
    }
}

/// Some spans.
#[derive(Clone, Copy, Debug)]
pub struct Spans<'a>(&'a [Span]);

impl<'a> Spans<'a> {
    /// Those of `spans`: in the order of their numbers, with a number between each two of them that is in neither, and in
    /// the list one after the other from its beginning on.
    pub const fn new(spans: &'a [Span]) -> Self {
        Self(spans)
    }

    /// Each of them.
    pub fn iter(self) -> impl Iterator<Item = &'a Span> {
        self.0.iter()
    }

    /// Where in the list the thing with this number is.
    #[inline]
    pub fn place(self, number: u64) -> Option<usize> {
        let Self(spans) = self;
        // Most machines have one.
        let at = |span: &Span| {
            let offset = number.wrapping_sub(span.first);
            (offset < span.count).then(|| (span.place + offset) as usize)
        };
        spans.iter().find_map(at)
    }

    /// The number of the thing at a place of the list; the place itself for one that is in none.
    #[inline]
    pub fn number(self, place: usize) -> u64 {
        let (Self(spans), place) = (self, place as u64);
        let at = |span: &Span| {
            let offset = place.wrapping_sub(span.place);
            (offset < span.count).then(|| span.first + offset)
        };
        spans.iter().find_map(at).unwrap_or(place)
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn places_are_numbered_without_a_gap_whatever_is_between_the_regions(
            regions in prop::collection::vec((1_u64..1 << 40, 1_u64..9), 0..6),
        ) {
            let (mut spans, mut numbers, mut next) = (Vec::new(), Vec::new(), 0);
            for (gap, count) in regions {
                let first = next + gap;
                spans.push(Span::new(first..first + count, numbers.len() as u64));
                numbers.extend(first..first + count);
                next = first + count;
            }
            let all = Spans::new(&spans);
            for (place, &number) in numbers.iter().enumerate() {
                prop_assert_eq!((all.place(number), all.number(place)), (Some(place), number));
            }
            for span in &spans {
                prop_assert_eq!(all.place(span.numbers().start - 1), None);
                prop_assert_eq!(all.place(span.numbers().end), None);
            }
        }
    }
}
