//! Bits that hardware sets by itself. Which ones these are depends on the format of a table, and that is known when the table
//! comes into a tree. Until then a write may find any bit set that hardware sets in one format or another. Whether it could
//! is judged when the format is known. In a table that ends in no tree, no hardware sets any.

use super::Checker;
use crate::entries::PRESENT;
use crate::event::{Event, Family, Record};
use crate::lives::Tickets;
use crate::rules::Rule;
use crate::tables::{Marked, Word};
use crate::window::{Key, tables};

/// The bits that hardware sets by itself, in one format or another; none of them says that an entry is present.
pub(super) const ANY_MARKS: u64 = 0x7e0;

impl Checker {
    /// Whether hardware may take one for the other in an entry of the table, but for the bits that it sets itself.
    ///
    /// An absent entry is as good as another: what software notes there (that it is frozen, that a CPU waits) comes and
    /// goes, and of two that note the same, either may have been first.
    pub(super) fn is_same(&self, table: u64, one: u64, other: u64) -> bool {
        if one & PRESENT == 0 || other & PRESENT == 0 {
            return (one | other) & PRESENT == 0;
        }
        let marks = self.family(table).map_or(ANY_MARKS, Family::marks);
        one | marks == other | marks
    }

    /// Whether hardware may see something of a write that finds `old` in an entry of the table, and leaves `new`.
    pub(super) fn is_change(&self, table: u64, old: u64, new: u64) -> bool {
        let may_be_seen = || self.family(table).is_none() && old != new;
        !self.is_same(table, old, new) || (old | new) & PRESENT != 0 && may_be_seen()
    }

    /// Whether hardware may see nothing of the write of an entry: of what it changes, where the table may have come into a
    /// tree later, in one format or another.
    pub(super) fn is_mark(&self, record: &Record) -> bool {
        let Event::Entry { table, old, new, .. } = record.event else { return false };
        let linked = self.tables.get(table).and_then(|table| table.linked);
        let may_come_later = linked.is_none_or(|(_, end)| end >= record.begin);
        let are_present = old & PRESENT != 0 && new & PRESENT != 0;
        self.is_same(table, old, new)
            || may_come_later && are_present && (old ^ new) & !ANY_MARKS == 0
    }

    fn family(&self, table: u64) -> Option<Family> {
        self.tables.get(table).and_then(|table| table.family)
    }

    /// Notes what a write found that hardware may have set, where it is not known yet whether it could.
    pub(super) fn note_marked(&mut self, line: u64, record: &Record) {
        let Event::Entry { table, index, old, .. } = record.event else { return };
        let present = self.present((table, index));
        let bits = present ^ old;
        if bits & !ANY_MARKS != 0
            || old & PRESENT == 0
            || self.family(table).is_some()
            || self.is_mark(record)
            || !self.finds_for_certain(table, record)
        {
            return;
        }
        let marked = &mut self.tables.table(table).marked;
        let known = marked.iter().fold(0, |known, one| known | one.bits);
        if bits & !known != 0 {
            marked.push(Marked { line, index, old, bits });
        }
    }

    /// Says so of what hardware does not set in the format of tables that come into a tree by an event at `tickets`; if that is
    /// the write of an entry, it is of `own`.
    pub(super) fn check_marked(&mut self, tickets: Tickets, own: Option<Word>) {
        for table in std::mem::take(&mut self.tables.known_late) {
            let Some(marks) = self.family(table).map(Family::marks) else { continue };
            let marked = std::mem::take(&mut self.tables.table(table).marked);
            let wrong = marked.into_iter().find(|one| one.bits & !marks != 0);
            if let Some(wrong) = wrong
                && self.comes_for_certain(table, tickets, own)
            {
                self.report_marked(table, &wrong);
            }
        }
    }

    /// Says so of what a write of a table found that ends in no tree.
    pub(super) fn end_marked(&mut self, table: u64) {
        let marked = self.tables.get(table).and_then(|table| table.marked.first().copied());
        if let Some(marked) = marked
            && self.family(table).is_none()
            && !self.is_any_chosen
            && !self.may_be_linked(table)
        {
            self.report_marked(table, &marked);
        }
    }

    fn report_marked(&mut self, table: u64, marked: &Marked) {
        let Marked { line, index, old, bits } = *marked;
        let present = old ^ bits;
        let what = format!(
            "entry {index} of table {table:#x} was {old:#x}, and is {present:#x} by the writes before"
        );
        self.report(line, Rule::LostWrite, what);
    }

    /// Whether a write that has an entry lead to `table`, or to one that leads there and is in no tree, is not made yet, and
    /// may have come.
    fn may_be_linked(&self, table: u64) -> bool {
        let now = self.taking.last().map_or(u64::MAX, |record| record.end);
        let leads = |record: &Record, table: u64| match record.event {
            Event::Entry { new, .. } => tables(new).any(|frame| frame == table),
            _ => false,
        };
        let is_to_be_linked = |table: u64| {
            self.window.of(Key::Link(table), now).next().is_some()
                || self.waiting.values().flatten().any(|(_, record)| leads(record, table))
        };
        let mut seen = vec![table];
        let mut next = 0;
        while let Some(&below) = seen.get(next) {
            if is_to_be_linked(below) {
                return true;
            }
            next += 1;
            let above = self.tables.leading_from_no_tree(below);
            seen.extend(above.filter(|above| !seen.contains(above)).collect::<Vec<_>>());
        }
        false
    }
}
