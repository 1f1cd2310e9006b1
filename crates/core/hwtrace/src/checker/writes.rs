//! What writes of entries come to.

use super::arrivals::{Arrival, Wrong};
use super::hasten::covers;
use super::{Checker, WAITING, describe, word_of};
use crate::entries::{Kind, PRESENT};
use crate::event::{Event, Record};
use crate::lives::Tickets;
use crate::rules::Rule;
use crate::tables::{Found, Twice, Word};
use crate::vmids::Writer;

impl Checker {
    /// Takes the write of an entry.
    pub(super) fn entry(&mut self, line: u64, record: &Record, word: Word) {
        // Two absent entries are in no order, and no caller is told of them.
        if let Event::Entry { table, old, new, .. } = record.event
            && self.is_change(table, old, new)
        {
            self.note_unordered(word, record);
            self.note_write(word, record);
            self.settle_write(word, record);
            self.admit(line, record.clone());
        }
    }

    /// Makes a write, if it is next in line; otherwise it waits.
    pub(super) fn admit(&mut self, line: u64, record: Record) {
        if let Some((table, _)) = word_of(&record) {
            self.waiting.entry(table).or_default().push((line, record));
            self.apply_waiting(table);
        }
    }

    /// Makes the writes of a table that are next in line.
    pub(super) fn apply_waiting(&mut self, table: u64) {
        while let Some(next) = self.next_in_line(table)
            && let Some((line, record)) = self.take_waiting(table, next)
        {
            self.write(line, &record);
            self.note_written(&record);
        }
        if self.waiting.get(&table).is_some_and(|waiting| waiting.len() > WAITING) {
            self.lost(table);
        }
    }

    /// The place among the writes of a table that wait of one that is next in line.
    fn next_in_line(&self, table: u64) -> Option<usize> {
        let waiting = self.waiting.get(&table)?;
        waiting.iter().position(|(_, record)| {
            // One that came before it for certain waits itself.
            let comes_before = |other: &Record| {
                word_of(other) == word_of(record)
                    && other.end < record.begin
                    && !self.is_mark(other)
            };
            self.is_next(record) && !waiting.iter().any(|(_, other)| comes_before(other))
        })
    }

    fn take_waiting(&mut self, table: u64, place: usize) -> Option<(u64, Record)> {
        let waiting = self.waiting.get_mut(&table)?;
        let taken = waiting.remove(place);
        if waiting.is_empty() {
            self.waiting.remove(&table);
        }
        Some(taken)
    }

    pub(super) fn is_next(&self, record: &Record) -> bool {
        let Event::Entry { table, index, old, .. } = record.event else { return true };
        self.lives.of(table).is_over() || self.is_same(table, self.present((table, index)), old)
    }

    /// What is in an entry.
    pub(super) fn present(&self, (table, index): Word) -> u64 {
        self.tables.get(table).map_or(0, |table| table.entries[index as usize])
    }

    /// Says so of the first write of the table that found what no CPU has written, and goes on from there.
    pub(super) fn lost(&mut self, table: u64) {
        self.lost_before(table, u64::MAX);
    }

    /// The same, of the writes that came before an event that begins at `before`.
    pub(super) fn lost_before(&mut self, table: u64, before: u64) {
        while let Some(waiting) = self.waiting.get(&table)
            && let Some(first) = waiting.iter().position(|(_, record)| record.end < before)
            && let Some((line, record)) = self.take_waiting(table, first)
        {
            if self.lives.of(table).may_end_after(record.begin) {
                // It may be of a table that was in the frame before.
                self.doubt_write(&record);
                continue;
            }
            if self.is_mark(&record) {
                // In the format of the table hardware may see nothing of it.
                continue;
            }
            if !self.finds_for_certain(table, &record) {
                self.doubt_write(&record);
            } else if let Event::Entry { index, old, .. } = record.event {
                let present = self.present((table, index));
                let what = format!(
                    "entry {index} of table {table:#x} was {old:#x}, and is {present:#x} by the writes before"
                );
                self.report(line, Rule::LostWrite, what);
            }
            self.write(line, &record);
            self.apply_waiting(table);
        }
    }

    /// Makes a write.
    pub(super) fn write(&mut self, line: u64, record: &Record) {
        let Record { begin, end, cpu, event: Event::Entry { table, index, old, mut new } } =
            *record
        else {
            return;
        };
        let (word, tickets) = ((table, index), (begin, end));
        if self.is_free(table, tickets) {
            if self.are_given_for_certain(&(table..table + 1), tickets) {
                let what = format!("entry {index} of table {table:#x} becomes {new:#x}");
                self.report(line, Rule::WriteAfterFree, what);
            }
            return;
        }
        if self.lives.of(table).is_over() {
            // It came before.
            return;
        }
        if self.is_mark(record) {
            // Of bits that hardware may set by itself, it changes some, and the rest is as it was.
            new ^= self.present(word) ^ old;
        }
        let was_linked = self.tables.get(table).is_some_and(|table| table.linked.is_some());
        let may_be_linked = !was_linked && self.present(word) & PRESENT != 0;
        let is_placed =
            self.tables.found(word).is_some() || may_be_linked && self.hasten_link(table, end);
        if !is_placed && self.is_certain(word, tickets, true) {
            self.check_unmapped(line, table, tickets, "is written");
        }
        self.note_marked(line, record);
        let Some(before) = self.tables.found(word) else {
            self.tables.put(word, new, end);
            self.end_live(word, new, tickets, cpu);
            return;
        };
        let family = self.tables.get(table).and_then(|table| table.family);
        let Some(family) = family else { return };
        let (level, old) = (before.level, before.bits);
        let certain =
            self.is_certain(word, tickets, true) && self.is_placed_for_certain(table, tickets);
        if certain && family.requires_break(level, old, new) {
            let what = format!("{} becomes {new:#x} at once", describe(&before));
            self.report(line, Rule::BreakBeforeMake, what);
        }
        if let Kind::Table(below) = before.kind {
            self.hasten_entries(below, end);
        }
        let after = family.kind(level, new);
        let comes = Found { bits: new, kind: after, ..before };
        let Wrong { free, rules } = self.check_new(&comes, family, tickets);
        if self.tables.found(word).is_none() {
            // What was asked for has taken the table out of its tree. TLBs may have what it came to have.
            self.add_unknown(&comes, tickets, true);
            if !self.lives.of(table).is_over() {
                self.tables.put(word, new, end);
            }
            return;
        }
        // If that is not certain, the write may be of the table that was in the frame before, or of the next.
        for (rule, what) in rules.into_iter().filter(|_| certain) {
            self.report(line, rule, what);
        }
        let mut gone = Vec::new();
        self.tables.delist(word, &mut gone);
        self.tables.put(word, new, end);
        if after != before.kind {
            self.end_overdue(before.root, word);
        }
        if family.takes_away(level, old, new) {
            let writer = Writer { cpu, tickets, is_seen_late: family.sees_late() };
            self.hasten_enters(before.root, end);
            let is_known =
                |found: &Found| found.word == word || self.is_certain(found.word, tickets, false);
            let certain = certain && gone.iter().all(is_known);
            for found in gone {
                self.add_stale(&found, writer, certain);
            }
            if !self.are_certain(&(table..table + 1), tickets) {
                // The write may be of a table that is free: what was there is there still.
                self.mixed.extend(self.exposed(before.root));
            }
        }
        self.enlist(line, word, tickets);
        self.check_marked(tickets, Some(word));
        if certain && after != Kind::Absent {
            self.check_forgotten(line, tickets, &before);
        }
        if let Some(what) = free {
            self.map_free(line, word, what, tickets, certain);
        }
        if let Some(below) = self.table_of(&comes) {
            let arrival = Arrival { line, tickets, by: Some(word) };
            self.check_arrivals(below, &arrival, certain);
        }
        self.explain(begin);
        for kind in [before.kind, after] {
            if let Kind::Table(below) = kind {
                self.lives.link(below..below + 1, tickets);
                if !certain {
                    self.lives.doubt_link(below..below + 1, end);
                }
            }
        }
        if let Kind::Table(below) = after {
            self.tables.table(below).linked.get_or_insert(tickets);
        }
    }

    /// Has what is in an entry known that was written by an event with these tickets.
    fn enlist(&mut self, line: u64, word: Word, tickets: Tickets) {
        let (_, end) = tickets;
        while let Err(twice) = self.tables.enlist(word, tickets) {
            let is_certain = self.is_twice_for_certain(twice, tickets, Some(word));
            let Twice { table, .. } = twice;
            self.tables.delist(word, &mut Vec::new());
            // Which of its places it has from now on is not known.
            self.tables.table(table).may_be_elsewhere |= !is_certain;
            // If it is in no place without this entry, the entry leads to it twice by itself: nothing that comes later
            // ends that.
            if !self.is_placed(table) || !self.vacate(table, end) {
                let _ = self.tables.enlist(word, tickets);
                let (table, index) = word;
                if is_certain {
                    let what =
                        format!("entry {index} of table {table:#x} leads there a second time");
                    self.report(line, Rule::TableTwice, what);
                }
                break;
            }
        }
    }

    /// Takes what comes into the table in `frame`, which goes, if that is not of another one in the same frame.
    fn hasten_entries(&mut self, frame: u64, before: u64) {
        for word in self.window.written(frame..frame + 1) {
            let gives = |one: &Record| matches!(one.event, Event::Give { frame: first, order } if covers(first, order, frame));
            let ends = self.window.writes(word).iter().filter_map(|one| self.window.get(*one));
            let last = ends.map(|one| one.end).max().unwrap_or(before);
            if self.window.find(last, gives).is_none() {
                while self.hasten_write(&[word], before, |_, _, new| new & PRESENT != 0) {}
            }
        }
    }

    /// Has the root at `root` be entered under each VMID under which it may have been before `before`.
    pub(super) fn hasten_enters(&mut self, root: u64, before: u64) {
        for vmid in self.window.entered(root) {
            if self.exposures.get(&vmid).is_none_or(|exposure| exposure.root != Some(root)) {
                let is_it = |event: &Event| matches!(event, Event::Enter { top, vmid: of, .. } if (*top, *of) == (root, vmid));
                if !self.hasten(before, |one| is_it(&one.event))
                    && self.window.find(before, |one| is_it(&one.event)).is_some()
                {
                    // TLBs may have what it takes away.
                    self.mixed.insert(vmid);
                }
            }
        }
    }
}
