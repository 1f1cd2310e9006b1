//! Which blocks are free: a binary buddy system (Knuth, The Art of Computer Programming, volume 1, section 2.5).

use std::collections::BTreeSet;
use std::ops::Range;

/// The largest block that is given out has `1 << MAX_ORDER` frames: 1 GiB.
pub const MAX_ORDER: u32 = 18;

/// The free blocks, by order. Lower ones are given out first, which keeps the rest whole.
#[derive(Debug, Default)]
pub(super) struct Buddy {
    free: [BTreeSet<u64>; MAX_ORDER as usize + 1],
}

impl Buddy {
    /// With these frames free.
    pub(super) fn new(frames: Range<u64>) -> Self {
        let mut buddy = Self::default();
        for (first, order) in blocks(frames) {
            buddy.free(first, order);
        }
        buddy
    }

    /// Takes a block of `order`.
    pub(super) fn allocate(&mut self, order: u32) -> Option<u64> {
        let (mut larger, first) = (order..=MAX_ORDER)
            .find_map(|order| Some((order, self.free[order as usize].pop_first()?)))?;
        while larger > order {
            larger -= 1;
            self.free[larger as usize].insert(first + (1 << larger));
        }
        Some(first)
    }

    /// Gives a block back, or a part of one.
    pub(super) fn free(&mut self, mut first: u64, mut order: u32) {
        while order < MAX_ORDER && self.free[order as usize].remove(&(first ^ (1 << order))) {
            first &= !(1 << order);
            order += 1;
        }
        self.free[order as usize].insert(first);
    }
}

/// The fewest blocks that make up `frames`, each with its order.
pub(super) fn blocks(mut frames: Range<u64>) -> impl Iterator<Item = (u64, u32)> {
    std::iter::from_fn(move || {
        let left = frames.end.checked_sub(frames.start).filter(|left| *left > 0)?;
        let (first, order) =
            (frames.start, left.ilog2().min(frames.start.trailing_zeros()).min(MAX_ORDER));
        frames.start += 1 << order;
        Some((first, order))
    })
}
