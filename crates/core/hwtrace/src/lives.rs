//! Which frames are given out, and which are free.

use std::collections::BTreeMap;
use std::ops::Range;

/// The first and second ticket of an event.
pub(crate) type Tickets = (u64, u64);

/// What happened last to frames.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Life {
    pub(crate) given: Option<Tickets>,
    pub(crate) freed: Option<Tickets>,
    /// The last that was taken of these gave them out.
    pub(crate) is_open: bool,
    /// What gave them out, freed, cleaned or filled them, and what made them a root.
    own: Track,
    /// All that happened to them: what linked them, too.
    all: Track,
}

/// Events of frames, as far as they may have come in another order.
#[derive(Clone, Copy, Debug, Default)]
struct Track {
    /// Of all, the one that ended last.
    last: Tickets,
    /// The greatest second ticket of the rest.
    before: u64,
    /// Where one overlaps another: until when. What is known may come of the order chosen.
    doubtful: u64,
}

impl Track {
    fn happen(&mut self, (begin, end): Tickets) {
        let (first, reach) = self.last;
        // What one event does to them twice does not overlap itself.
        if reach > begin && first < end && reach != end || self.before > begin {
            self.doubtful = self.doubtful.max(reach).max(end);
        }
        if end > reach {
            (self.last, self.before) = ((begin, end), self.before.max(reach));
        } else if end < reach {
            self.before = self.before.max(end);
        }
    }

    /// Nothing is in doubt after what began at `begin`, if nothing overlaps that.
    fn settle(&mut self, begin: u64) {
        if self.doubtful < begin {
            self.doubtful = 0;
        }
    }

    /// Whether something is in doubt, or has happened after `begin`.
    fn is_in_doubt(self, begin: u64) -> bool {
        self.doubtful > 0 || self.last.1 > begin
    }
}

impl Life {
    /// Until when it is in doubt what happened to the frames.
    pub(crate) fn doubtful(self) -> u64 {
        self.all.doubtful
    }

    /// Whether the frames are free, and may not have been given out since.
    pub(crate) fn is_over(self) -> bool {
        self.freed.is_some_and(|(begin, _)| self.given.is_none_or(|(_, given)| given < begin))
    }

    /// Whether they are free for certain when an event begins at `begin`.
    fn is_over_at(self, begin: u64) -> bool {
        self.is_over() && self.freed.is_some_and(|(_, end)| end < begin)
    }

    /// Whether they are given out for certain when an event begins at `begin`.
    fn is_given_at(self, begin: u64) -> bool {
        self.given.is_some_and(|(first, last)| {
            last < begin && self.freed.is_none_or(|(_, freed)| freed < first)
        })
    }

    /// Whether they may have been freed by an event that ends after `begin`.
    pub(crate) fn may_end_after(self, begin: u64) -> bool {
        self.freed.is_some_and(|(_, end)| end > begin)
    }
}

/// The lives of frames, in as much memory as there are ranges of them that differ.
#[derive(Debug, Default)]
pub(crate) struct Lives {
    /// By the first frame: the first after them, and their life.
    ranges: BTreeMap<u64, (u64, Life)>,
}

impl Lives {
    /// The life of a frame.
    pub(crate) fn of(&self, frame: u64) -> Life {
        let range = self.ranges.range(..=frame).next_back();
        range.filter(|(_, (end, _))| *end > frame).map(|(_, (_, life))| *life).unwrap_or_default()
    }

    /// One of `frames` that is free for certain when an event begins at `begin`.
    pub(crate) fn any_free(&self, frames: &Range<u64>, begin: u64) -> Option<u64> {
        self.any(frames, |life| life.is_over_at(begin))
    }

    /// One of `frames` that is given out for certain when an event begins at `begin`.
    pub(crate) fn any_given(&self, frames: &Range<u64>, begin: u64) -> Option<u64> {
        self.any(frames, |life| life.is_given_at(begin))
    }

    /// One of `frames` that was given out by what was taken last.
    pub(crate) fn any_open(&self, frames: &Range<u64>) -> Option<u64> {
        self.any(frames, |life| life.is_open)
    }

    /// One of `frames` that may have been given out by an event that ends after `begin`.
    pub(crate) fn any_given_after(&self, frames: &Range<u64>, begin: u64) -> Option<u64> {
        self.any(frames, |life| life.given.is_some_and(|(_, end)| end > begin))
    }

    /// Notes that something happens to `frames` themselves.
    pub(crate) fn happen(&mut self, frames: Range<u64>, tickets: Tickets) {
        self.change(frames, |life| {
            life.own.happen(tickets);
            life.all.happen(tickets);
        });
    }

    /// Notes that `frames` are linked as tables, or no more.
    pub(crate) fn link(&mut self, frames: Range<u64>, tickets: Tickets) {
        self.change(frames, |life| life.all.happen(tickets));
    }

    /// Notes that what `frames` are is in no doubt, after what began at `begin`, if nothing overlaps that.
    pub(crate) fn settle(&mut self, frames: Range<u64>, begin: u64) {
        self.change(frames, |life| {
            life.own.settle(begin);
            life.all.settle(begin);
        });
    }

    /// Notes that what happens to `frames` themselves until `end` overlaps something else.
    pub(crate) fn doubt(&mut self, frames: Range<u64>, end: u64) {
        self.change(frames, |life| {
            life.own.doubtful = life.own.doubtful.max(end);
            life.all.doubtful = life.all.doubtful.max(end);
        });
    }

    /// Notes that what links `frames` until `end`, or does so no more, is in doubt.
    pub(crate) fn doubt_link(&mut self, frames: Range<u64>, end: u64) {
        self.change(frames, |life| life.all.doubtful = life.all.doubtful.max(end));
    }

    /// Whether something of `frames` is in doubt, or has happened to them after `begin`.
    pub(crate) fn is_any_in_doubt(&self, frames: &Range<u64>, begin: u64) -> bool {
        self.any(frames, |life| life.all.is_in_doubt(begin)).is_some()
    }

    /// The same, but for what links them.
    pub(crate) fn is_any_own_in_doubt(&self, frames: &Range<u64>, begin: u64) -> bool {
        self.any(frames, |life| life.own.is_in_doubt(begin)).is_some()
    }

    pub(crate) fn give(&mut self, frames: Range<u64>, tickets: Tickets) {
        self.change(frames, |life| (life.given, life.is_open) = (Some(tickets), true));
    }

    pub(crate) fn free(&mut self, frames: Range<u64>, tickets: Tickets) {
        self.change(frames, |life| (life.freed, life.is_open) = (Some(tickets), false));
    }

    fn any(&self, frames: &Range<u64>, is_it: impl Fn(Life) -> bool) -> Option<u64> {
        if frames.is_empty() {
            return None;
        }
        let before = self.ranges.range(..=frames.start).next_back();
        let from = before.map_or(frames.start, |(first, _)| *first);
        let mut ranges = self.ranges.range(from..frames.end);
        let found = ranges.find(|(_, (end, life))| *end > frames.start && is_it(*life));
        found.map(|(first, _)| frames.start.max(*first))
    }

    fn change(&mut self, frames: Range<u64>, mut change: impl FnMut(&mut Life)) {
        self.split(frames.start);
        self.split(frames.end);
        let mut next = frames.start;
        let known: Vec<Range<u64>> =
            self.ranges.range(frames.clone()).map(|(first, (end, _))| *first..*end).collect();
        for range in known {
            self.add(next..range.start);
            next = range.end;
        }
        self.add(next..frames.end);
        self.ranges.range_mut(frames).for_each(|(_, (_, life))| change(life));
    }

    /// Has the frames, of which nothing is known, in a range of their own.
    fn add(&mut self, frames: Range<u64>) {
        if !frames.is_empty() {
            self.ranges.insert(frames.start, (frames.end, Life::default()));
        }
    }

    /// Has a range begin at `at`, where it lies within one.
    fn split(&mut self, at: u64) {
        if let Some((_, (end, life))) = self.ranges.range_mut(..at).next_back()
            && *end > at
        {
            let rest = (*end, *life);
            *end = at;
            self.ranges.insert(at, rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_have_what_each_frame_has(steps in prop::collection::vec((0..64u64, 1..16u64, any::<bool>()), 0..64)) {
            let (mut lives, mut frames) = (Lives::default(), vec![Life::default(); 80]);
            for (at, (first, count, give)) in (1u64..).zip(steps) {
                let (range, tickets) = (first..first + count, (2 * at, 2 * at + 1));
                for life in &mut frames[first as usize..(first + count) as usize] {
                    *(if give { &mut life.given } else { &mut life.freed }) = Some(tickets);
                }
                if give { lives.give(range, tickets) } else { lives.free(range, tickets) }
                let now = 2 * at + 2;
                for first in 0..73_usize {
                    let range = first as u64..first as u64 + 7;
                    let is = |is_it: &dyn Fn(Life) -> bool| frames[first..first + 7].iter().position(|life| is_it(*life)).map(|at| (first + at) as u64);
                    prop_assert_eq!(lives.any_free(&range, now), is(&|life| life.is_over_at(now)));
                    prop_assert_eq!(lives.any_given(&range, now), is(&|life| life.is_given_at(now)));
                    prop_assert_eq!(lives.of(first as u64).is_over(), frames[first].is_over());
                }
            }
        }
    }
}
