//! Writes of one entry that overlap, in an order in which each finds what the one before has left.

use std::ops::Range;

use super::hasten::covers;
use super::{Checker, word_of};
use crate::event::{Event, Record};
use crate::lives::Tickets;
use crate::order::{Change, ITEMS, Item, order};
use crate::tables::Word;

/// Where an event is that is put in order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// The one that is taken.
    Own,
    /// It was taken, and waits for another; or it is being taken, and needs this one first.
    Taken,
    /// In the window, with that number.
    Window(u64),
}

impl Checker {
    /// Takes first what came before a write of `word` that is about to be taken.
    pub(super) fn settle_write(&mut self, word: Word, record: &Record) {
        let limit = self.limit(record.end);
        let overlaps = |number: &u64| self.window.get(*number).is_some_and(|one| one.begin < limit);
        if self.is_next(record) && !self.window.writes(word).iter().any(overlaps) {
            return;
        }
        if let Some(change) = self.change_of(word, &record.event) {
            self.settle(word, Item { begin: record.begin, end: record.end, change });
        }
    }

    /// Takes first what was written into tables in `frames`, which are about to be free, or given out: `change` says so.
    pub(super) fn settle_life(
        &mut self,
        frames: Range<u64>,
        (begin, end): Tickets,
        change: Change,
    ) {
        let limit = self.limit(end);
        for word in self.window.written(frames) {
            let overlaps =
                |number: &u64| self.window.get(*number).is_some_and(|one| one.begin < limit);
            if self.window.writes(word).iter().any(overlaps) {
                self.settle(word, Item { begin, end, change });
            }
        }
    }

    /// Takes first what was written into entries of `table` that are about to be filled.
    pub(super) fn settle_fill(&mut self, table: u64, record: &Record) {
        let limit = self.limit(record.end);
        for word in self.window.written(table..table + 1) {
            let overlaps =
                |number: &u64| self.window.get(*number).is_some_and(|one| one.begin < limit);
            if self.window.writes(word).iter().any(overlaps)
                && let Some(change) = self.change_of(word, &record.event)
            {
                self.settle(word, Item { begin: record.begin, end: record.end, change });
            }
        }
    }

    fn settle(&mut self, word: Word, own: Item) {
        let Some(items) = self.items(word, own) else { return };
        let life = self.lives.of(word.0);
        let is_new =
            self.tables.get(word.0).is_none_or(|one| one.linked.is_none() && one.filled == 0);
        let present = ((!life.is_over()).then(|| self.present(word)), is_new);
        let is_same = |one, other| self.is_same(word.0, one, other);
        let only: Vec<Item> = items.iter().map(|(_, item)| *item).collect();
        let Some(order) = order(present, &only, &is_same) else { return };
        // What comes after a record that is being taken for certain is not taken before that one.
        let limit = self.limit(own.end);
        for number in order {
            match items[number].0 {
                Source::Own => break,
                Source::Taken => {}
                Source::Window(number) => {
                    if self.window.get(number).is_some_and(|one| one.begin >= limit) {
                        break;
                    }
                    let is_write = self.window.get(number).and_then(word_of).is_some();
                    if !is_write {
                        self.hasten_this(number);
                    } else if let Some((line, record)) = self.window.take(number) {
                        self.note_write(word, &record);
                        self.admit(line, record);
                    }
                }
            }
        }
    }

    /// `own`, and what may have come before it, or before that. `None` where it is too much.
    fn items(&self, word: Word, own: Item) -> Option<Vec<(Source, Item)>> {
        let item = |record: &Record| {
            let change = self.change_of(word, &record.event)?;
            Some(Item { begin: record.begin, end: record.end, change })
        };
        let mut items = vec![(Source::Own, own)];
        let waiting = self.waiting.get(&word.0).into_iter().flatten();
        let waiting = waiting.filter(|(_, record)| word_of(record) == Some(word));
        let taken = waiting.map(|(_, record)| record).chain(self.taking.iter().rev().skip(1));
        items.extend(taken.filter_map(|record| Some((Source::Taken, item(record)?))));
        let mut limit = items.iter().map(|(_, item)| item.end).max()?;
        // In the order of their second tickets, so those that overlap one of them come in turns.
        let mut left = self.window.writes(word).to_vec();
        loop {
            let before = left.len();
            left.retain(|number| {
                let Some(one) = self.window.get(*number) else { return false };
                if one.begin >= limit || items.len() > ITEMS {
                    return true;
                }
                if let Some(item) = item(one) {
                    items.push((Source::Window(*number), item));
                    limit = limit.max(one.end);
                }
                false
            });
            if left.len() == before {
                break;
            }
        }
        let others = self.window.begun(limit).filter(|(_, one)| word_of(one).is_none());
        let others = others.filter_map(|(number, one)| Some((Source::Window(number), item(one)?)));
        items.extend(others);
        // What is taken goes first if it can, and the others about as they came.
        items.sort_by_key(|(source, item)| (*source != Source::Own, item.begin / 2 + item.end / 2));
        (items.len() <= ITEMS).then_some(items)
    }

    /// What an event does to an entry; `None` where hardware sees nothing of it.
    fn change_of(&self, word: Word, event: &Event) -> Option<Change> {
        match *event {
            Event::Entry { table, index, old, new } if (table, index) == word => {
                (!self.is_same(table, old, new)).then_some(Change::Write(old, new))
            }
            Event::Fill { table, index, count, value, step } if table == word.0 => {
                let number = word.1.checked_sub(index).filter(|number| *number < count)?;
                Some(Change::Fill(value.wrapping_add(step.wrapping_mul(u64::from(number)))))
            }
            Event::Give { frame, order } if covers(frame, order, word.0) => Some(Change::Give),
            Event::Free { frame, order } if covers(frame, order, word.0) => Some(Change::Free),
            _ => None,
        }
    }
}
