//! Roots, and tables that are not in a tree yet.

use super::Checker;
use super::arrivals::Arrival;
use crate::event::{Event, Record};
use crate::lives::Tickets;
use crate::parse::ENTRIES;
use crate::rules::Rule;
use crate::tables::{Root, Twice};

impl Checker {
    pub(super) fn root(&mut self, line: u64, record: &Record, top: u64) {
        let Event::Root { order, levels, family, .. } = record.event else { return };
        let Record { begin, end, .. } = *record;
        let tickets = (begin, end);
        let frames = top..top + (1 << order);
        self.check_given(line, &frames, tickets, "is a root");
        for table in frames.clone() {
            self.check_unmapped(line, table, tickets, "is part of a root");
        }
        let mut is_twice = false;
        for table in frames.clone() {
            let twice = Twice { table, by: None };
            is_twice |= !self.vacate(table, end) && self.is_twice_for_certain(twice, tickets, None);
        }
        let before = self.tables.roots.get(&top).map_or(0, |root| 1 << root.order);
        for table in frames.end..frames.end.max(top + before) {
            self.leave_tree(top, table, tickets);
        }
        // By an event that was taken before, and may have come after.
        let is_entered = self.root_lives.get(&top).is_some_and(|life| life.entered > begin);
        let root = Root { order, levels, family, is_entered };
        if let Err(twice) = self.tables.add_root(top, root, tickets) {
            is_twice |= self.is_twice_for_certain(twice, tickets, None);
        }
        self.check_marked(tickets, None);
        if is_twice {
            self.report(line, Rule::TableTwice, format!("root {top:#x} is in another tree"));
        }
        let arrival = Arrival { line, tickets, by: None };
        for table in frames.clone() {
            self.check_arrivals(table, &arrival, true);
        }
        for table in frames {
            self.tables.table(table).linked.get_or_insert((begin, end));
        }
        self.overdue.remove(&top);
        self.explain(begin);
    }

    pub(super) fn root_gone(&mut self, line: u64, top: u64, (begin, end): Tickets) {
        let is_it = |event: &Event| matches!(event, Event::Root { top: root, .. } if *root == top);
        if !self.tables.roots.contains_key(&top) {
            self.hasten(end, |one| is_it(&one.event));
        }
        let Some(Root { order, .. }) = self.tables.roots.remove(&top) else { return };
        self.root_lives.entry(top).or_default().gone = end;
        self.overdue.remove(&top);
        for root in self.lingering.values_mut().filter(|root| **root == Some(top)) {
            *root = None;
        }
        for table in top..top + (1 << order) {
            self.leave_tree(top, table, (begin, end));
        }
        if self.is_inside((begin, end), |_, root| root == top) {
            let what = format!("root {top:#x} is gone, and a CPU is in its guest");
            self.report(line, Rule::RootGone, what);
        }
        for vmid in self.exposed(top) {
            if self.exposures.get(&vmid).is_some_and(|exposure| exposure.entered > begin) {
                // What was entered may be another root, in the same frame.
                self.doubt_exposure(vmid);
            } else if let Some(exposure) = self.exposures.get_mut(&vmid) {
                exposure.root = None;
            }
        }
    }

    /// The table in frame `table` is no part of the root at `top` any more, since an event at `tickets`. It may be of another
    /// root meanwhile.
    fn leave_tree(&mut self, top: u64, table: u64, tickets: Tickets) {
        let place = self.tables.get(table).and_then(|table| table.place);
        if place.is_some_and(|place| place.root == top) {
            let mut gone = Vec::new();
            self.tables.detach(table, &mut gone);
            for found in gone {
                self.add_unknown(&found, tickets, false);
            }
        }
    }

    pub(super) fn fill(&mut self, line: u64, record: &Record, table: u64) {
        let Event::Fill { index, count, value, step, .. } = record.event else { return };
        let Record { begin, end, .. } = *record;
        if self.is_free(table, (begin, end)) {
            if self.are_given_for_certain(&(table..table + 1), (begin, end)) {
                let what = format!("table {table:#x} is filled, and its frame is free");
                self.report(line, Rule::WriteAfterFree, what);
            }
            return;
        }
        self.settle_fill(table, record);
        let known = self.tables.table(table);
        if known.linked.is_some() || known.filled + count > ENTRIES {
            // Another one, in the same frame.
            self.hasten_give(table, end);
        }
        let is_led = !self.hasten_unlink(table, end);
        if is_led && self.is_placed_for_certain(table, (begin, end)) {
            let what = format!("table {table:#x} is filled, and is in a tree: what it had is lost");
            self.report(line, Rule::LostWrite, what);
        }
        self.check_unmapped(line, table, (begin, end), "is filled");
        // What they left is gone.
        self.lost_before(table, begin);
        self.tables.table(table).filled += count;
        let is_filled = |one: &u32| (index..index + count).contains(one);
        for one in self.tables.present(table).into_iter().filter(is_filled) {
            self.tables.delist((table, one), &mut Vec::new());
        }
        let bits = |number| value.wrapping_add(step.wrapping_mul(number));
        self.tables.fill((table, index), (0..u64::from(count)).map(bits), end);
        for one in self.tables.present(table).into_iter().filter(is_filled) {
            let _ = self.tables.enlist((table, one), (begin, end));
        }
        self.check_marked((begin, end), None);
        self.apply_waiting(table);
    }

    /// Has the table in `frame` in no tree, by what is written down later. False where it stays in one.
    pub(super) fn vacate(&mut self, frame: u64, before: u64) -> bool {
        self.hasten_unlink(frame, before)
            || self.hasten_free(frame, before) && self.hasten_unlink(frame, before)
    }
}
