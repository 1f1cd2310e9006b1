//! The records that are written down and not taken yet.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use crate::entries::Kind;
use crate::event::{Barrier, Event, Family, Record};
use crate::tables::Word;

/// Frames that are looked up by one number.
const CHUNK: u64 = 512;

/// What records are looked up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// Writes of an entry.
    Word(Word),
    /// Writes after which an entry leads to the table in this frame, in one format or another.
    Link(u64),
    /// Entries to a guest, and exits, by TLB and VMID.
    Stay((u32, u16)),
    /// Entries to a guest, by VMID.
    Entered(u16),
    /// Barriers that order walks, by CPU.
    Barrier(u32),
    /// Completions of invalidations.
    Sync,
    /// What happens to [frames], by the number of [`CHUNK`] frames.
    Frames(u64),
}

/// The frames whose life, or whose life as a table, an event is part of.
pub(crate) fn frames(event: &Event) -> Range<u64> {
    match *event {
        Event::Give { frame, order } | Event::Free { frame, order } => frame..frame + (1 << order),
        Event::Clean { frame, count } | Event::Flush { frame, count } => frame..frame + count,
        Event::Root { top, order, .. } => top..top + (1 << order),
        Event::RootGone { top } => top..top + 1,
        Event::Fill { table, .. } => table..table + 1,
        _ => 0..0,
    }
}

/// The frames of tables that an entry may lead to, by one format or another.
pub(crate) fn tables(bits: u64) -> impl Iterator<Item = u64> {
    let table = |family: Family| match family.kind(1, bits) {
        Kind::Table(frame) => Some(frame),
        _ => None,
    };
    // Arm's frames have fewer bits than those of EPT and NPT, and no other difference.
    let [arm, ept, npt, riscv] = [Family::Arm, Family::Ept, Family::Npt, Family::RiscV].map(table);
    let long = ept.or(npt).filter(|_| ept.or(npt) != arm);
    arm.into_iter().chain(long).chain(riscv.filter(|_| riscv != arm && riscv != ept.or(npt)))
}

/// The keys of the records of `frames`.
fn chunks(frames: &Range<u64>) -> impl Iterator<Item = Key> + use<> {
    let chunks = frames.start / CHUNK..frames.end.div_ceil(CHUNK);
    chunks.map(Key::Frames)
}

fn keys(record: &Record) -> impl Iterator<Item = Key> + use<> {
    let one = match record.event {
        Event::Entry { table, index, .. } => Some(Key::Word((table, index))),
        Event::Enter { tlb, vmid, .. } | Event::Leave { tlb, vmid } => Some(Key::Stay((tlb, vmid))),
        Event::Barrier { kind: Barrier::Walks } => Some(Key::Barrier(record.cpu)),
        Event::Sync { .. } => Some(Key::Sync),
        _ => None,
    };
    let entered = match record.event {
        Event::Enter { vmid, .. } => Some(Key::Entered(vmid)),
        _ => None,
    };
    let new = match record.event {
        Event::Entry { new, .. } => new,
        _ => 0,
    };
    let links = tables(new).map(Key::Link);
    one.into_iter().chain(entered).chain(links).chain(chunks(&frames(&record.event)))
}

/// The last records, in the order of their second tickets. Each has a number.
#[derive(Debug, Default)]
pub(crate) struct Window {
    records: VecDeque<Option<(u64, Record)>>,
    /// The number of the first.
    first: u64,
    /// The numbers of those that are writes of an entry.
    writes: BTreeMap<Word, Vec<u64>>,
    /// The keys of each, its first ticket, and its number.
    begins: BTreeSet<(Key, u64, u64)>,
    /// How many of them are entries to the guest, by root and VMID.
    enters: BTreeMap<(u64, u16), u32>,
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
        self.begins.extend(keys(record).map(|key| (key, record.begin, number)));
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
        for key in keys(&taken.1) {
            self.begins.remove(&(key, taken.1.begin, number));
        }
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

    /// All of that key that began before `before`.
    pub(crate) fn of(&self, key: Key, before: u64) -> impl Iterator<Item = &Record> {
        let begun = self.begins.range((key, 0, 0)..(key, before, 0));
        begun.filter_map(|(_, _, number)| self.get(*number))
    }

    /// The events by which a root at `top` comes or goes, and that began before `before`.
    pub(crate) fn root_events(&self, top: u64, before: u64) -> impl Iterator<Item = &Record> {
        self.of(Key::Frames(top / CHUNK), before).filter(move |one| match one.event {
            Event::Root { top: root, .. } | Event::RootGone { top: root } => root == top,
            _ => false,
        })
    }

    /// The frames among `wanted` to which something happens that began before `before`.
    pub(crate) fn frames_of(
        &self,
        wanted: &Range<u64>,
        before: u64,
    ) -> impl Iterator<Item = Range<u64>> {
        let begun = chunks(wanted).flat_map(move |key| self.of(key, before));
        let (start, end) = (wanted.start, wanted.end);
        let common = begun.map(move |one| {
            let frames = frames(&one.event);
            frames.start.max(start)..frames.end.min(end)
        });
        common.filter(|common| !common.is_empty())
    }

    /// The numbers of the writes of an entry.
    pub(crate) fn writes(&self, word: Word) -> &[u64] {
        self.writes.get(&word).map_or(&[], Vec::as_slice)
    }

    /// The entries of the tables in `frames` that are written.
    pub(crate) fn written(&self, frames: Range<u64>) -> Vec<Word> {
        if frames.is_empty() {
            return Vec::new();
        }
        self.writes.range((frames.start, 0)..(frames.end, 0)).map(|(word, _)| *word).collect()
    }

    /// The VMIDs under which the root at `top` is entered.
    pub(crate) fn entered(&self, top: u64) -> Vec<u16> {
        self.enters.range((top, 0)..=(top, u16::MAX)).map(|((_, vmid), _)| *vmid).collect()
    }
}
