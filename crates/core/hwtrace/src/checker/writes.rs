//! What writes of entries come to.

use super::{Checker, WAITING, describe, word_of};
use crate::entries::Kind;
use crate::event::{Event, Family, Record};
use crate::rules::Rule;
use crate::tables::{Word, pages};
use crate::vmids::{Need, Stale};

/// None of them is set in an absent entry, in any format.
const PRESENT: u64 = 0b111;

impl Checker {
    /// Makes the writes of a table that are next in line.
    pub(super) fn apply_waiting(&mut self, table: u64) {
        let Some(mut waiting) = self.waiting.remove(&table) else { return };
        loop {
            let next = waiting.iter().position(|(_, record)| {
                // One that came before it for certain waits itself.
                let comes_before =
                    |other: &Record| word_of(other) == word_of(record) && other.end < record.begin;
                self.is_next(record) && !waiting.iter().any(|(_, other)| comes_before(other))
            });
            let Some(next) = next else { break };
            let (line, record) = waiting.remove(next);
            self.write(line, &record);
        }
        if waiting.is_empty() {
            return;
        }
        let full = waiting.len() > WAITING;
        self.waiting.insert(table, waiting);
        if full {
            self.lost(table);
        }
    }

    /// Makes the writes that waited for their table to be known: which bits of an entry hardware writes by itself is seen
    /// by what leads to it, and that may be written down late.
    pub(super) fn apply_known(&mut self) {
        for table in self.waiting.keys().copied().collect::<Vec<_>>() {
            self.apply_waiting(table);
        }
    }

    pub(super) fn is_next(&self, record: &Record) -> bool {
        let Event::Entry { table, index, old, .. } = record.event else { return true };
        if self.freed.contains_key(&table) {
            return true;
        }
        let present = self.tables.get(table).map_or(0, |table| table.entries[index as usize]);
        self.is_same(table, present, old)
    }

    /// Whether hardware takes one for the other in an entry of the table, but for the bits that it sets itself.
    ///
    /// An absent entry is as good as another: what software notes there (that it is frozen, that a CPU waits) comes and
    /// goes, and of two that note the same, either may have been first.
    pub(super) fn is_same(&self, table: u64, one: u64, other: u64) -> bool {
        if one & PRESENT == 0 || other & PRESENT == 0 {
            return (one | other) & PRESENT == 0;
        }
        let family = self.tables.get(table).and_then(|table| table.family);
        let marks = family.map_or(0, Family::marks);
        one | marks == other | marks
    }

    /// Says so of the first write of the table that found what no CPU has written, and goes on from there.
    pub(super) fn lost(&mut self, table: u64) {
        while let Some(waiting) = self.waiting.get_mut(&table).filter(|waiting| !waiting.is_empty())
        {
            let (line, record) = waiting.remove(0);
            if let Event::Entry { index, old, .. } = record.event {
                let present =
                    self.tables.get(table).map_or(0, |table| table.entries[index as usize]);
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
        let Record { begin, end, event: Event::Entry { table, index, new, .. }, .. } = *record
        else {
            return;
        };
        let word = (table, index);
        if let Some(freed) = self.freed.get(&table).copied() {
            if begin > freed {
                let what = format!("entry {index} of table {table:#x} becomes {new:#x}");
                self.report(line, Rule::WriteAfterFree, what);
            }
            return;
        }
        let Some(before) = self.tables.found(word) else {
            self.tables.table(table).entries[index as usize] = new;
            return;
        };
        let family = self.tables.get(table).and_then(|table| table.family);
        let Some(family) = family else { return };
        let (level, old) = (before.level, before.bits);
        if family.requires_break(level, old, new) {
            let what = format!("{} becomes {new:#x} at once", describe(&before));
            self.report(line, Rule::BreakBeforeMake, what);
        }
        let after = family.kind(level, new);
        if after != Kind::Absent {
            self.check_forgotten(line, end, word, |bits| family.requires_break(level, bits, new));
        }
        let mut gone = Vec::new();
        self.tables.delist(word, &mut gone);
        self.tables.table(table).entries[index as usize] = new;
        if family.takes_away(level, old, new) {
            for found in gone {
                self.add_stale(&found, begin);
            }
        }
        if !self.tables.enlist(word) {
            let what = format!("entry {index} of table {table:#x} leads there a second time");
            self.report(line, Rule::TableTwice, what);
        }
        self.explain(begin);
        if let Kind::Table(_) = after {
            self.apply_known();
        }
        if let Kind::Leaf(leaf) = after {
            let frames = leaf.frame..leaf.frame + pages(level);
            if family.goes_past_caches()
                && !self.dirty.is_empty()
                && let Some(frame) = self.dirty.any_in(&frames)
            {
                let what = format!("frame {frame:#x} is mapped at guest frame {:#x}", before.gfn);
                self.report(line, Rule::NotCleaned, what);
            }
        }
    }

    /// All TLBs must have forgotten each value of the entry that `needs` says so of, before the write on `line`, which ended
    /// at `end`, gives it another.
    fn check_forgotten(
        &mut self,
        line: u64,
        end: u64,
        (table, index): Word,
        needs: impl Fn(u64) -> bool,
    ) {
        let need = |bits: u64| {
            let what = format!(
                "entry {index} of table {table:#x} was {bits:#x}, and has another value before all TLBs have forgotten that"
            );
            Need { rule: Rule::BreakBeforeMake, line, end, what, used: None }
        };
        let is_it = |stale: &Stale| stale.word == (table, index) && needs(stale.bits);
        if self.stale_words.contains_key(&(table, index)) {
            for stale in self.stale.values_mut().flatten().filter(|stale| is_it(stale)) {
                stale.needs.push(need(stale.bits));
            }
        }
        // A write that waited for the one before may come after the invalidation that it did not wait for.
        if end < self.synced {
            let late = self
                .recent
                .iter()
                .filter(|recent| end < recent.sync && recent.stale.certain && is_it(&recent.stale));
            let broken: Vec<_> =
                late.map(|recent| (need(recent.stale.bits), recent.vmid)).collect();
            for (Need { rule, line, what, .. }, vmid) in broken {
                self.report(line, rule, format!("{what} (VMID {vmid})"));
            }
        }
    }
}
