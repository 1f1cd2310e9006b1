//! The frames of a machine, in blocks of powers of two (a buddy allocator).
//!
//! The information on a frame is beside the frames, not in them. So freeing a frame writes nothing to it, and a frame
//! of zeroes stays so. Nothing here allocates, and the number of orders bounds every step.

use core::ops::Range;

use crate::spans::Spans;

/// Blocks are of `1 << 0` to `1 << (ORDERS - 1)` frames: 1 GiB at most.
pub const ORDERS: usize = 19;

const NONE: u32 = u32::MAX;

/// The information on one frame.
#[derive(Clone, Copy, Debug)]
pub struct FrameInfo {
    /// The next on the list of free blocks, if it is the first of one.
    next: u32,
    previous: u32,
    /// Of the block that it is the first of.
    order: u8,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not to be given: no memory, or the hypervisor's own; or inside of a block.
    Inside,
    /// The first of a block that is free.
    Free,
    /// The first of a block that was given.
    Given,
}

impl FrameInfo {
    /// Of a frame that is not known to be memory.
    pub const ABSENT: Self = Self { next: NONE, previous: NONE, order: 0, state: State::Inside };
}

/// The frames of some spans.
#[derive(Debug)]
pub struct FramePool<'a> {
    spans: Spans<'a>,
    frames: &'a mut [FrameInfo],
    heads: [u32; ORDERS],
    free: u64,
}

impl<'a> FramePool<'a> {
    /// No frames yet, of those of `spans`, which have one each of `frames`, whatever they say.
    pub fn new(spans: Spans<'a>, frames: &'a mut [FrameInfo]) -> Self {
        frames.fill(FrameInfo::ABSENT);
        Self { spans, frames, heads: [NONE; ORDERS], free: 0 }
    }

    /// Frames that are free.
    pub fn free_frames(&self) -> u64 {
        self.free
    }

    /// Adds frames by number, as far as they are among those of the pool. None is there, or was given.
    pub fn add(&mut self, range: Range<u64>) {
        for span in self.spans.iter() {
            let numbers = span.numbers();
            let end = range.end.min(numbers.end);
            let mut at = range.start.max(numbers.start);
            while at < end {
                let fits =
                    |order: &usize| at.is_multiple_of(1 << order) && at + (1 << order) <= end;
                let order = (0..ORDERS).rev().find(fits).unwrap_or(0);
                if let Some(place) = self.spans.place(at) {
                    self.insert(place, order);
                }
                at += 1 << order;
            }
        }
    }

    /// `1 << order` frames, the first at a multiple of their number; `None` when so many are not left in one piece.
    pub fn allocate(&mut self, order: usize) -> Option<u64> {
        let mut from = (order..ORDERS).find(|&order| self.heads[order] != NONE)?;
        let first = self.heads[from] as usize;
        self.remove(first, from);
        while from > order {
            from -= 1;
            self.insert(first + (1 << from), from);
        }
        self.frames[first] =
            FrameInfo { order: order as u8, state: State::Given, ..FrameInfo::ABSENT };
        Some(self.spans.number(first))
    }

    /// Takes back what [`FramePool::allocate`] gave. Returns whether it had given that: if not, nothing happens.
    #[must_use]
    pub fn free(&mut self, first: u64, order: usize) -> bool {
        let Some(mut at) = self.spans.place(first) else { return false };
        match self.frames.get_mut(at) {
            Some(info) if info.state == State::Given && usize::from(info.order) == order => {
                *info = FrameInfo::ABSENT;
            }
            _ => return false,
        }
        let (mut number, mut order) = (first, order);
        while order + 1 < ORDERS {
            // Blocks that are next to each other are of one span: no two spans are.
            let other = number ^ (1 << order);
            let Some(buddy) = self.spans.place(other) else { break };
            match self.frames.get(buddy) {
                Some(info) if info.state == State::Free && usize::from(info.order) == order => {}
                _ => break,
            }
            self.remove(buddy, order);
            (at, number) = (at.min(buddy), number.min(other));
            order += 1;
        }
        self.insert(at, order);
        true
    }

    /// Has a block that [`FramePool::allocate`] gave be as many blocks of one frame as it has, each of which is taken back alone.
    /// Returns whether it had given that: if not, nothing happens.
    #[must_use]
    pub fn part(&mut self, first: u64, order: usize) -> bool {
        let Some(at) = self.spans.place(first) else { return false };
        match self.frames.get(at) {
            Some(info) if info.state == State::Given && usize::from(info.order) == order => {}
            _ => return false,
        }
        // Frames that follow each other in a block are of one span, and so is what is said of them.
        for info in &mut self.frames[at..at + (1 << order)] {
            *info = FrameInfo { state: State::Given, ..FrameInfo::ABSENT };
        }
        true
    }

    fn insert(&mut self, at: usize, order: usize) {
        let next = self.heads[order];
        self.frames[at] =
            FrameInfo { next, previous: NONE, order: order as u8, state: State::Free };
        if next != NONE {
            self.frames[next as usize].previous = at as u32;
        }
        self.heads[order] = at as u32;
        self.free += 1 << order;
    }

    fn remove(&mut self, at: usize, order: usize) {
        let FrameInfo { next, previous, .. } = self.frames[at];
        match previous {
            NONE => self.heads[order] = next,
            previous => self.frames[previous as usize].next = next,
        }
        if next != NONE {
            self.frames[next as usize].previous = previous;
        }
        self.frames[at] = FrameInfo::ABSENT;
        self.free -= 1 << order;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::vec;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::spans::Span;

    #[test]
    fn what_is_given_back_is_one_piece_again() {
        let mut infos = vec![FrameInfo::ABSENT; 1024];
        let spans = [Span::new(0x1000..0x1400, 0)];
        let mut pool = FramePool::new(Spans::new(&spans), &mut infos);
        pool.add(0x1000..0x1400);
        let given: Vec<_> = (0..1024).map(|_| pool.allocate(0).unwrap()).collect();
        assert_eq!((pool.free_frames(), pool.allocate(0)), (0, None));
        for &frame in &given {
            assert!(pool.free(frame, 0));
        }
        assert_eq!(pool.allocate(10), Some(0x1000));
    }

    #[test]
    fn what_was_not_given_is_not_taken() {
        let mut infos = vec![FrameInfo::ABSENT; 16];
        let spans = [Span::new(16..32, 0)];
        let mut pool = FramePool::new(Spans::new(&spans), &mut infos);
        pool.add(16..32);
        let two = pool.allocate(1).unwrap();
        assert!(
            !pool.free(two + 1, 0) && !pool.free(two, 0) && !pool.free(3, 0) && !pool.free(99, 0)
        );
        assert!(pool.free(two, 1) && !pool.free(two, 1));
        assert_eq!(pool.free_frames(), 16);
    }

    proptest! {
        #[test]
        fn no_frame_has_two_owners_and_none_is_lost(
            holes in prop::collection::vec((0_u64..900, 1_u64..60), 0..6),
            steps in prop::collection::vec((0..5, 0_usize..7, any::<prop::sample::Index>()), 1..400),
        ) {
            const BASE: u64 = 0x4_0123;
            let mut infos = vec![FrameInfo::ABSENT; 1000];
            // Of three regions, of which the second is 1 TiB further on, and the third not much.
            let numbers = [BASE..BASE + 400, BASE + (1 << 28)..BASE + (1 << 28) + 300, BASE + (1 << 28) + 301..BASE + (1 << 28) + 601];
            let spans = [0, 400, 700].map(|place| Span::new(numbers[place / 350].clone(), place as u64));
            let mut pool = FramePool::new(Spans::new(&spans), &mut infos);
            let mut memory: BTreeSet<u64> = numbers.into_iter().flatten().collect();
            for (at, len) in holes {
                (at..at + len).for_each(|place| { memory.remove(&Spans::new(&spans).number(place as usize)); });
            }
            // Each run of frames that follow each other.
            let mut runs: Vec<Range<u64>> = Vec::new();
            for &frame in &memory {
                match runs.last_mut() {
                    Some(run) if run.end == frame => run.end += 1,
                    _ => runs.push(frame..frame + 1),
                }
            }
            for run in runs {
                pool.add(run);
            }
            let all = memory.len() as u64;
            prop_assert_eq!(pool.free_frames(), all);

            let mut given: Vec<(u64, usize)> = Vec::new();
            for (step, order, which) in steps {
                if step < 2 {
                    let Some(first) = pool.allocate(order) else { continue };
                    prop_assert!(first.is_multiple_of(1 << order));
                    for frame in first..first + (1 << order) {
                        prop_assert!(memory.remove(&frame), "given twice, or no memory");
                    }
                    given.push((first, order));
                } else if !given.is_empty() {
                    let (first, order) = given.swap_remove(which.index(given.len()));
                    if step == 2 {
                        prop_assert!(!pool.part(first, order + 1) && !pool.part(first + (1 << order), 7));
                        prop_assert!(pool.part(first, order));
                        given.extend((first..first + (1 << order)).map(|frame| (frame, 0)));
                        continue;
                    }
                    prop_assert!(pool.free(first, order));
                    memory.extend(first..first + (1 << order));
                }
                prop_assert_eq!(pool.free_frames(), memory.len() as u64);
            }
            for (first, order) in given {
                prop_assert!(pool.free(first, order));
            }
            prop_assert_eq!(pool.free_frames(), all);
        }
    }
}
