//! The records that are written down and not taken yet.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::event::{Event, Record};
use crate::tables::Word;

/// The last records, in the order of their second tickets. Each has a number.
#[derive(Debug, Default)]
pub(crate) struct Window {
    records: VecDeque<Option<(u64, Record)>>,
    /// The number of the first.
    first: u64,
    /// The numbers of those that are writes of an entry.
    writes: BTreeMap<Word, Vec<u64>>,
    /// How many of them are entries to the guest, by root and VMID.
    enters: HashMap<(u64, u16), u32>,
}

impl Window {
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    pub(crate) fn push(&mut self, line: u64, record: &Record) {
        let number = self.first + self.records.len() as u64;
        match record.event {
            Event::Entry { table, index, .. } => {
                self.writes.entry((table, index)).or_default().push(number);
            }
            Event::Enter { top, vmid, .. } => *self.enters.entry((top, vmid)).or_default() += 1,
            _ => {}
        }
        self.records.push_back(Some((line, record.clone())));
    }

    /// Takes the first. `None` where it was taken before, or there is none.
    pub(crate) fn pop(&mut self) -> Option<(u64, Record)> {
        let first = self.take(self.first);
        if self.records.pop_front().is_some() {
            self.first += 1;
        }
        first
    }

    /// Takes the record of that number.
    pub(crate) fn take(&mut self, number: u64) -> Option<(u64, Record)> {
        let place = number.checked_sub(self.first)?;
        let taken = self.records.get_mut(place as usize)?.take()?;
        match taken.1.event {
            Event::Entry { table, index, .. } => {
                if let Some(writes) = self.writes.get_mut(&(table, index)) {
                    writes.retain(|one| *one != number);
                    if writes.is_empty() {
                        self.writes.remove(&(table, index));
                    }
                }
            }
            Event::Enter { top, vmid, .. } => {
                if let Some(count) = self.enters.get_mut(&(top, vmid)) {
                    *count -= 1;
                    if *count == 0 {
                        self.enters.remove(&(top, vmid));
                    }
                }
            }
            _ => {}
        }
        Some(taken)
    }

    pub(crate) fn get(&self, number: u64) -> Option<&Record> {
        let place = number.checked_sub(self.first)?;
        self.records.get(place as usize)?.as_ref().map(|(_, record)| record)
    }

    /// Of those that began before `before`, and that `is_it` says so of, the one that came first by the middle of its
    /// tickets.
    pub(crate) fn find(&self, before: u64, is_it: impl Fn(&Record) -> bool) -> Option<u64> {
        let found = self.begun(before).filter(|(_, one)| is_it(one));
        let first = found.min_by_key(|(_, one)| one.middle());
        first.map(|(number, _)| number)
    }

    /// All that began before `before`, with their numbers.
    pub(crate) fn begun(&self, before: u64) -> impl Iterator<Item = (u64, &Record)> {
        let numbered = (self.first..).zip(&self.records);
        let there = numbered.filter_map(|(number, one)| Some((number, &one.as_ref()?.1)));
        there.filter(move |(_, record)| record.begin < before)
    }

    /// The numbers of the writes of an entry.
    pub(crate) fn writes(&self, word: Word) -> &[u64] {
        self.writes.get(&word).map_or(&[], Vec::as_slice)
    }

    /// The entries of the tables in `frames` that are written.
    pub(crate) fn written(&self, frames: std::ops::Range<u64>) -> Vec<Word> {
        if frames.is_empty() {
            return Vec::new();
        }
        self.writes.range((frames.start, 0)..(frames.end, 0)).map(|(word, _)| *word).collect()
    }

    /// The VMIDs under which the root at `top` is entered.
    pub(crate) fn entered(&self, top: u64) -> Vec<u16> {
        let of = self.enters.keys().filter(|(root, _)| *root == top);
        of.map(|(_, vmid)| *vmid).collect()
    }
}
