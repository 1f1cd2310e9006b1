//! Barriers that order writes of entries before walks.

use super::Checker;
use crate::event::{Barrier, Event, Family, Record};
use crate::lives::Tickets;
use crate::rules::Rule;
use crate::tables::Word;
use crate::vmids::{Stale, Writer};
use crate::window::Key;

const WALKS: Event = Event::Barrier { kind: Barrier::Walks };

impl Checker {
    pub(super) fn barrier(&mut self, cpu: u32, tickets: Tickets) {
        let last = self.barriers.entry(cpu).or_insert(tickets);
        if last.1 < tickets.1 {
            *last = tickets;
        }
        if self.unordered.get(&cpu).is_some_and(|(_, (begin, _))| *begin < tickets.1) {
            self.unordered.remove(&cpu);
        }
    }

    /// The second ticket of the last barrier of `cpu`.
    pub(super) fn last_barrier(&self, cpu: u32) -> u64 {
        self.barriers.get(&cpu).map_or(0, |(_, end)| *end)
    }

    /// The greatest second ticket of a barrier of `cpu` that may have come before an event which ends at `end`.
    pub(super) fn barrier_before(&self, cpu: u32, end: u64) -> u64 {
        let left = self.window.of(Key::Barrier(cpu), end).map(|one| one.end);
        left.fold(self.last_barrier(cpu), u64::max)
    }

    /// A CPU has written an entry, and no barrier has come since.
    pub(super) fn note_unordered(&mut self, word: Word, record: &Record) {
        let Record { begin, end, cpu, .. } = *record;
        let table = self.tables.get(word.0).filter(|table| table.place.is_some());
        let is_late = table.and_then(|table| table.family).is_some_and(Family::sees_late);
        let is_certain = || self.is_placed_for_certain(word.0, (begin, end));
        if is_late && self.last_barrier(cpu) < begin && is_certain() {
            self.unordered.entry(cpu).or_insert((word, (begin, end)));
        }
    }

    /// Says so if what `cpu` wrote before an event at `tickets` is not ordered before that.
    pub(super) fn check_ordered(&mut self, line: u64, cpu: u32, tickets: Tickets, before: &str) {
        let (begin, end) = tickets;
        let Some((_, written)) = self.unordered.get(&cpu) else { return };
        if written.1 >= begin || self.hasten(end, |one| one.cpu == cpu && one.event == WALKS) {
            return;
        }
        if let Some(((table, index), _)) = self.unordered.remove(&cpu) {
            let what = format!(
                "CPU {cpu} wrote entry {index} of table {table:#x}, and no barrier orders that before {before}"
            );
            self.report(line, Rule::NoBarrier, what);
        }
    }

    /// Whether one does so in whatever order before an invalidation of `cpu` that began at `begin`.
    pub(super) fn is_ordered_for_certain(&self, stale: &Stale, cpu: u32, begin: u64) -> bool {
        let Writer { cpu: by, tickets: (_, written), is_seen_late } = stale.writer;
        let mut last = [cpu, by].into_iter().filter_map(|cpu| self.barriers.get(&cpu));
        !is_seen_late || by == cpu || last.any(|(first, end)| *first > written && *end < begin)
    }

    /// Whether a barrier orders the write that took `stale` away before an invalidation of `cpu`, which took place at
    /// `tickets`.
    pub(super) fn is_ordered(&self, stale: &Stale, cpu: u32, (begin, end): Tickets) -> bool {
        let writer = stale.writer;
        let (written, done) = writer.tickets;
        !writer.is_seen_late
            || writer.cpu == cpu
            || done >= begin
            || self.barrier_before(cpu, end).max(self.barrier_before(writer.cpu, end)) > written
    }
}
