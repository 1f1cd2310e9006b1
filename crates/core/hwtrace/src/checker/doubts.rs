//! What may be otherwise in another order of the tickets.
//!
//! The checker takes events in one order that their tickets allow. Where events overlap that have to do with each other,
//! what is known after them may come of that order. So the checker notes which entries and frames such events were of,
//! and reports nothing that rests on one of those. An entry is certain again after a write that no other overlaps; a
//! frame, after an event that gives it out or frees it, and that nothing else of the frame overlaps.

use std::ops::Range;

use super::{Checker, RootLife};
use crate::entries::Kind;
use crate::event::{Event, Record};
use crate::lives::Tickets;
use crate::tables::{Twice, Word};
use crate::window::{self, Key, frames};

/// Writes of an entry that are remembered.
const WRITES: usize = 8;

impl Checker {
    /// Notes that something happens to the frames of an event, which is about to be taken.
    pub(super) fn note_frames(&mut self, record: &Record) {
        let Record { begin, end, ref event, .. } = *record;
        let all = frames(event);
        if all.is_empty() {
            return;
        }
        self.lives.happen(all.clone(), (begin, end));
        let overlapping: Vec<Range<u64>> = self.window.frames_of(&all, end).collect();
        for frames in overlapping {
            self.is_any_chosen = true;
            self.lives.doubt(frames, end);
        }
    }

    /// Notes that a root comes or goes, by a record that is about to be taken.
    pub(super) fn note_root(&mut self, record: &Record) {
        let (Event::Root { top, .. } | Event::RootGone { top }) = record.event else { return };
        let Record { begin, end, .. } = *record;
        let last = self.window.root_events(top, end).map(|one| one.end).max();
        let life = self.root_lives.entry(top).or_default();
        let taken = Some(life.reach).filter(|reach| *reach > begin);
        if last.max(taken).is_some() {
            life.doubtful = life.doubtful.max(end).max(last.max(taken).unwrap_or(end));
        } else if life.doubtful < begin {
            life.doubtful = 0;
        }
        life.reach = life.reach.max(end);
    }

    /// Whether there is a root at `top`, or none, when an event comes at `tickets`, in whatever order.
    pub(super) fn is_root_certain(&self, top: u64, tickets: Tickets) -> bool {
        self.is_root_settled(top, tickets) && self.are_given_for_certain(&(top..top + 1), tickets)
    }

    /// The same, of the events by which it comes and goes alone.
    pub(super) fn is_root_settled(&self, top: u64, tickets: Tickets) -> bool {
        let (begin, end) = tickets;
        let comes = |event: &Event| matches!(event, Event::Root { top: root, .. } if *root == top);
        let is_own = self.own(tickets).is_some_and(comes);
        let is_over = |life: &RootLife| {
            life.doubtful == 0 && (is_own || life.reach == 0 || life.reach < begin)
        };
        self.root_lives.get(&top).is_none_or(is_over)
            && self.window.root_events(top, end).next().is_none()
    }

    /// Whether the root in whose tree the table in `frame` is is there in whatever order.
    fn has_root_for_certain(&self, frame: u64, tickets: Tickets) -> bool {
        let place = self.tables.get(frame).and_then(|table| table.place);
        place.is_none_or(|place| self.is_root_settled(place.root, tickets))
    }

    /// Notes that an event has been taken which says what frames are, whatever they were before.
    pub(super) fn settle_frames(&mut self, record: &Record) {
        if matches!(record.event, Event::Give { .. } | Event::Free { .. }) {
            self.lives.settle(frames(&record.event), record.begin);
        }
    }

    /// Notes that `word` is written, by a record that is about to be taken.
    ///
    /// If no two of the writes that overlap it find the same, what they find tells their order.
    pub(super) fn note_write(&mut self, word: Word, record: &Record) {
        let Event::Entry { table, old, .. } = record.event else { return };
        let Record { begin, end, .. } = *record;
        let of_table = self.writes.get(&table);
        let known = of_table.and_then(|writes| writes.get(&word.1));
        let taken = known.into_iter().flat_map(|writes| &writes.last);
        let taken = taken.filter(|(last, _)| *last > begin).map(|(last, old)| (*last, *old));
        let left = self.window.of(Key::Word(word), end).filter_map(|one| match one.event {
            Event::Entry { old, new, .. } => {
                self.is_change(table, old, new).then_some((one.end, old))
            }
            _ => None,
        });
        let mut found: Vec<(u64, u64)> = taken.chain(left).collect();
        found.push((end, old));
        let is_twice = (1..found.len())
            .any(|at| found[..at].iter().any(|one| self.is_same(table, one.1, found[at].1)));
        let is_chosen = is_twice
            || known.is_some_and(|writes| writes.forgotten > begin)
            || !self.are_certain(&(table..table + 1), (begin, end));
        let last = found.iter().map(|(last, _)| *last).max().unwrap_or(end);
        let writes = self.writes.entry(table).or_default().entry(word.1).or_default();
        if is_chosen {
            self.is_any_chosen = true;
            writes.doubtful = writes.doubtful.max(last);
        }
        writes.reach = writes.reach.max(end);
        writes.last.push_back((end, old));
        if writes.last.len() > WRITES
            && let Some((last, _)) = writes.last.pop_front()
        {
            writes.forgotten = writes.forgotten.max(last);
        }
    }

    /// Forgets the writes of `table` that nothing may overlap any more which comes after an event that began at `begin`.
    pub(super) fn forget_writes(&mut self, table: u64, begin: u64) {
        if let Some(writes) = self.writes.get_mut(&table) {
            writes.retain(|_, one| one.reach.max(one.doubtful) > begin);
            if writes.is_empty() {
                self.writes.remove(&table);
            }
        }
    }

    /// A write has found what it says, and has left what it says.
    pub(super) fn note_written(&mut self, record: &Record) {
        let Some((table, index)) = super::word_of(record) else { return };
        let Record { begin, end, .. } = *record;
        let is_alone = self.window.of(Key::Word((table, index)), end).next().is_none();
        if let Some(writes) = self.writes.get_mut(&table).and_then(|all| all.get_mut(&index))
            && is_alone
            && writes.doubtful.max(writes.forgotten) < begin
            && writes.last.iter().filter(|(last, _)| *last > begin).count() < 2
        {
            writes.doubtful = 0;
        }
    }

    /// A write has not found what it says, for those before may have been taken in another order than they came.
    pub(super) fn doubt_write(&mut self, record: &Record) {
        if let Some((table, index)) = super::word_of(record) {
            let writes = self.writes.entry(table).or_default().entry(index).or_default();
            writes.doubtful = writes.doubtful.max(record.end);
        }
    }

    /// The event that is being taken, if it is the one at `tickets`: it puts nothing in doubt by itself.
    fn own(&self, tickets: Tickets) -> Option<&Event> {
        let last = self.taking.last().filter(|record| (record.begin, record.end) == tickets);
        last.map(|record| &record.event)
    }

    /// Whether `frame` becomes part of a root by the event at `tickets`.
    pub(super) fn comes_as_root(&self, frame: u64, tickets: Tickets) -> bool {
        let own = self.own(tickets).filter(|event| matches!(event, Event::Root { .. }));
        own.is_some_and(|event| frames(event).contains(&frame))
    }

    /// Whether what is known of the lives of `frames` is so in whatever order when an event comes at `tickets`.
    pub(super) fn are_certain(&self, frames: &Range<u64>, tickets: Tickets) -> bool {
        let is_in_doubt = |frames: &Range<u64>, begin| self.lives.is_any_in_doubt(frames, begin);
        self.is_none_in_doubt(frames, tickets, is_in_doubt)
    }

    /// Whether it is so in whatever order that `frames` are given out, or free, when an event comes at `tickets`.
    pub(super) fn are_given_for_certain(&self, frames: &Range<u64>, tickets: Tickets) -> bool {
        let is_in_doubt =
            |frames: &Range<u64>, begin| self.lives.is_any_own_in_doubt(frames, begin);
        self.is_none_in_doubt(frames, tickets, is_in_doubt)
    }

    /// Whether nothing of `frames` is in doubt when an event comes at `tickets`, where `is_in_doubt` says so of what has
    /// happened, also after a ticket.
    fn is_none_in_doubt(
        &self,
        frames: &Range<u64>,
        tickets: Tickets,
        is_in_doubt: impl Fn(&Range<u64>, u64) -> bool,
    ) -> bool {
        let (begin, end) = tickets;
        let own = self.own(tickets).map_or(0..0, window::frames);
        let before = frames.start..frames.end.min(own.start);
        let after = frames.start.max(own.end)..frames.end;
        let others = if own.is_empty() { [frames.clone(), 0..0] } else { [before, after] };
        let own = frames.start.max(own.start)..frames.end.min(own.end);
        !is_in_doubt(&own, u64::MAX)
            && others.iter().all(|others| !is_in_doubt(others, begin))
            && self.window.frames_of(frames, end).next().is_none()
    }

    /// Whether what a write of `table` finds there is so in whatever order.
    pub(super) fn finds_for_certain(&self, table: u64, record: &Record) -> bool {
        let Event::Entry { index, .. } = record.event else { return false };
        let writes = self.writes.get(&table).and_then(|all| all.get(&index));
        writes.is_none_or(|writes| writes.doubtful == 0)
            && !self.lives.is_any_in_doubt(&(table..table + 1), u64::MAX)
            && !self
                .window
                .of(Key::Word((table, index)), record.end)
                .any(|one| self.is_written(one))
    }

    /// Whether hardware may see something of a write of an entry.
    fn is_written(&self, record: &Record) -> bool {
        match record.event {
            Event::Entry { table, old, new, .. } => self.is_change(table, old, new),
            _ => false,
        }
    }

    /// Whether what `word` has when an event comes at `tickets` is so in whatever order. If that event is a write of it,
    /// `own` says so.
    pub(super) fn is_certain(&self, word: Word, tickets: Tickets, own: bool) -> bool {
        self.is_settled(word, tickets, own) && self.are_certain(&(word.0..word.0 + 1), tickets)
    }

    /// The same, of the writes of `word` alone, whatever table it is an entry of.
    fn is_settled(&self, word: Word, tickets: Tickets, own: bool) -> bool {
        let (table, index) = word;
        let (begin, end) = tickets;
        let writes = self.writes.get(&table).and_then(|all| all.get(&index));
        let is_write = |one: &Record| super::word_of(one) == Some(word) && !self.is_mark(one);
        !self.may_be_elsewhere(table)
            && writes.is_none_or(|writes| writes.doubtful == 0 && (own || writes.reach < begin))
            && (own
                || !self.window.of(Key::Word(word), end).any(|one| self.is_written(one))
                    && !self
                        .waiting
                        .get(&table)
                        .into_iter()
                        .flatten()
                        .any(|(_, one)| is_write(one)))
    }

    /// Whether it is not known which of two places the table in `frame` has.
    pub(super) fn may_be_elsewhere(&self, frame: u64) -> bool {
        self.tables.get(frame).is_some_and(|table| table.may_be_elsewhere)
    }

    /// Whether a walk comes by `word` to what it has when an event comes at `tickets`, in whatever order. The event may be a
    /// write of `own`.
    pub(super) fn leads_for_certain(
        &self,
        word: Word,
        tickets: Tickets,
        own: Option<Word>,
    ) -> bool {
        let mut walked = self.tables.path(word.0).into_iter().chain([word]);
        self.has_root_for_certain(word.0, tickets)
            && walked.all(|word| {
                self.is_settled(word, tickets, own == Some(word))
                    && self.are_certain(&(word.0..word.0 + 1), tickets)
            })
    }

    /// Whether the table in `frame` comes into its tree by an event at `tickets` in whatever order. The event is as
    /// [`Checker::leads_for_certain`] says.
    pub(super) fn comes_for_certain(
        &self,
        frame: u64,
        tickets: Tickets,
        own: Option<Word>,
    ) -> bool {
        let last = self.tables.path(frame).pop();
        self.has_root_for_certain(frame, tickets)
            && self.are_certain(&(frame..frame + 1), tickets)
            && last.is_none_or(|word| self.leads_for_certain(word, tickets, own))
    }

    /// Whether two entries lead to a table when an event comes at `tickets`, in whatever order; or one, where the table is
    /// part of a root. The event is as [`Checker::leads_for_certain`] says.
    pub(super) fn is_twice_for_certain(
        &self,
        Twice { table, by }: Twice,
        tickets: Tickets,
        own: Option<Word>,
    ) -> bool {
        let last = self.tables.path(table).pop();
        let mut words = last.into_iter().chain(by);
        !self.may_be_elsewhere(table)
            && self.has_root_for_certain(table, tickets)
            && self.are_certain(&(table..table + 1), tickets)
            && words.all(|word| self.leads_for_certain(word, tickets, own))
    }

    /// Whether the place of the table in `frame` at `tickets` is certain.
    pub(super) fn is_placed_for_certain(&self, frame: u64, tickets: Tickets) -> bool {
        let path = self.tables.path(frame);
        let last = path.last().copied();
        let is_other = |one: &Record| super::word_of(one).is_some_and(|word| Some(word) != last);
        let leads = |word: &Word| {
            self.tables.found(*word).is_some_and(|found| found.kind == Kind::Table(frame))
        };
        last.as_ref().is_none_or(leads)
            && !self.may_be_elsewhere(frame)
            && self.has_root_for_certain(frame, tickets)
            && !self.window.of(Key::Link(frame), tickets.1).any(is_other)
            && self.are_certain(&(frame..frame + 1), tickets)
            && path.into_iter().all(|word| self.is_certain(word, tickets, false))
    }

    /// Whether the CPU that uses `tlb` goes in or out at `tickets`, and at no other time that overlaps it.
    pub(super) fn is_alone(&self, who: (u32, u16), (begin, end): Tickets) -> bool {
        self.stays.get(&who).is_none_or(|stay| stay.reach() < begin)
            && self.window.of(Key::Stay(who), end).next().is_none()
    }
}
