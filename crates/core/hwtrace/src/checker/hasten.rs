//! What is taken before those that are written down earlier.

use super::Checker;
use crate::entries::PRESENT;
use crate::event::{Event, Record};
use crate::tables::Word;
use crate::window::tables;

/// Records that are taken at once, each for the one before.
const DEEP: usize = 16;

/// Tables that lead to each other, at most.
const LEVELS: u32 = 5;

impl Checker {
    /// Takes the first record that began before `before`, and that `is_it` says so of. False where there is none.
    pub(super) fn hasten(&mut self, before: u64, is_it: impl Fn(&Record) -> bool) -> bool {
        let number = self.window.find(self.limit(before), is_it);
        number.is_some_and(|number| self.hasten_this(number))
    }

    /// `before`, or the end of the first of the records that are being taken: what one of them needs comes before all.
    pub(super) fn limit(&self, before: u64) -> u64 {
        self.taking.iter().map(|record| record.end).fold(before, u64::min)
    }

    pub(super) fn hasten_this(&mut self, number: u64) -> bool {
        if self.taking.len() >= DEEP {
            return false;
        }
        let Some((line, record)) = self.window.take(number) else { return false };
        self.process(line, &record);
        true
    }

    /// Takes a record by which `frame` is given out.
    pub(super) fn hasten_give(&mut self, frame: u64, before: u64) -> bool {
        self.hasten(before, |one| matches!(one.event, Event::Give { frame: first, order } if covers(first, order, frame)))
    }

    /// Takes a record by which `frame` is free.
    pub(super) fn hasten_free(&mut self, frame: u64, before: u64) -> bool {
        self.hasten(before, |one| matches!(one.event, Event::Free { frame: first, order } if covers(first, order, frame)))
    }

    /// Takes a record by which the table in `frame` is filled.
    pub(super) fn hasten_fill(&mut self, frame: u64, before: u64) -> bool {
        self.hasten(before, |one| matches!(one.event, Event::Fill { table, .. } if table == frame))
    }

    /// Takes a record by which the CPU that uses `tlb` leaves the guest.
    pub(super) fn hasten_leave(&mut self, (tlb, vmid): (u32, u16), before: u64) -> bool {
        let leave = Event::Leave { tlb, vmid };
        self.hasten(before, |one| one.event == leave)
    }

    /// Takes a record by which one of `words`, of the tree of the root at `root`, is changed, or the root goes.
    pub(super) fn hasten_change(&mut self, root: u64, words: &[Word], before: u64) -> bool {
        self.hasten(before, |one| one.event == Event::RootGone { top: root })
            || self.hasten_write(words, before, |_, old, _| old & PRESENT != 0)
    }

    /// Takes the next write of one of `words` that `is_it` says so of, by what was there and what it leaves.
    pub(super) fn hasten_write(
        &mut self,
        words: &[Word],
        before: u64,
        is_it: impl Fn(&Record, u64, u64) -> bool,
    ) -> bool {
        let limit = self.limit(before);
        let is_wanted = |number: &u64| {
            self.window.get(*number).is_some_and(|one| match one.event {
                Event::Entry { old, new, .. } => one.begin < limit && is_it(one, old, new),
                _ => false,
            })
        };
        let writes = words.iter().flat_map(|word| self.window.writes(*word)).copied();
        let wanted: Vec<u64> = writes.filter(is_wanted).collect();
        let is_next =
            |number: &&u64| self.window.get(**number).is_some_and(|one| self.is_next(one));
        let first = wanted.iter().find(is_next).or(wanted.first()).copied();
        first.is_some_and(|number| self.hasten_this(number))
    }

    /// Has the table in `frame` in no tree, by what is written down later. False where it stays in one.
    pub(super) fn hasten_unlink(&mut self, frame: u64, before: u64) -> bool {
        while let Some(place) = self.tables.get(frame).and_then(|table| table.place) {
            let words = self.tables.path(frame);
            if !self.hasten_change(place.root, &words, before) {
                return false;
            }
        }
        true
    }

    /// Has the table in `frame` in a tree, by what is written down later. False where it is in none.
    pub(super) fn hasten_link(&mut self, frame: u64, before: u64) -> bool {
        let mut below = frame;
        for _ in 0..LEVELS {
            let limit = self.limit(before);
            let Some(number) = self.window.find(limit, |one| leads_to(&one.event, below)) else {
                break;
            };
            let above = match self.window.get(number).map(|one| &one.event) {
                Some(Event::Entry { table, .. }) => *table,
                _ => below,
            };
            if !self.hasten_this(number) || self.is_placed(above) {
                break;
            }
            below = above;
        }
        self.is_placed(frame)
    }

    pub(super) fn is_placed(&self, table: u64) -> bool {
        self.tables.get(table).is_some_and(|table| table.place.is_some())
    }
}

/// Whether `frame` is one of `1 << order` frames from `first` on.
pub(super) fn covers(first: u64, order: u32, frame: u64) -> bool {
    (first..first + (1 << order)).contains(&frame)
}

/// Whether an event has the table in `frame` in a tree, in whatever format.
fn leads_to(event: &Event, frame: u64) -> bool {
    match *event {
        Event::Root { top, order, .. } => covers(top, order, frame),
        Event::Entry { new, .. } => tables(new).any(|table| table == frame),
        _ => false,
    }
}
