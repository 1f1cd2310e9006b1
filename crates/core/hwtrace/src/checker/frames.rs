//! Frames that are given out, and given back.

use std::collections::BTreeSet;
use std::ops::Range;

use super::overdue::Since;
use super::{Checker, describe};
use crate::entries::Kind;
use crate::event::Event;
use crate::lives::Tickets;
use crate::order::Change;
use crate::parse::ENTRIES;
use crate::rules::Rule;
use crate::tables::{Found, Place, Word, pages};
use crate::vmids::{Need, Remains, Stale, Writer};

impl Checker {
    pub(super) fn give(&mut self, line: u64, frames: Range<u64>, tickets: Tickets) {
        let (begin, end) = tickets;
        while let Some(frame) = self.lives.any_open(&frames)
            && self.hasten_free(frame, end)
        {}
        self.settle_life(frames.clone(), tickets, Change::Give);
        if let Some(frame) = self.lives.any_given(&frames, begin)
            && self.are_given_for_certain(&(frame..frame + 1), tickets)
        {
            let what = format!("frame {frame:#x} is given out, and was not free");
            self.report(line, Rule::GivenTwice, what);
        }
        for table in self.tables_in(&frames) {
            if self.is_table_over(table, begin) {
                self.tables.detach(table, &mut Vec::new());
                self.end_table(table, begin);
            } else {
                // It may be of this life, or of the one before.
                self.lives.doubt(table..table + 1, end);
                let of_table = |stale: &&mut Stale| stale.is_live() && stale.word.0 == table;
                for stale in self.stale.values_mut().flatten().filter(of_table) {
                    stale.certain = false;
                }
            }
        }
        if self.free_early.any_in(&frames).is_some() {
            let is_certain = self.are_certain(&frames, tickets);
            for stale in self.stale.values_mut().flatten() {
                if stale.is_live() && stale.word.1 != ENTRIES && frames.contains(&stale.word.0) {
                    // It was in a table that is empty now.
                    stale.end(Writer::nobody(tickets), is_certain);
                }
                let is_free = |need: &Need| {
                    let common =
                        need.frames.start.max(frames.start)..need.frames.end.min(frames.end);
                    need.end < begin && !common.is_empty()
                };
                let is_before = stale.needs.iter().any(is_free);
                stale.is_given |= is_before && has(stale.kind, stale.level, &frames);
            }
            self.free_early.remove(frames.clone());
        }
        if self.options.caches_maintained {
            self.dirty.insert(frames.clone());
        }
        self.lives.give(frames, tickets);
    }

    pub(super) fn free(&mut self, line: u64, (frame, order): (u64, u32), tickets: Tickets) {
        let (begin, end) = tickets;
        let frames = frame..frame + (1 << order);
        self.settle_life(frames.clone(), tickets, Change::Free);
        self.dirty.remove(frames.clone());
        // A table that is free may map itself.
        let mapped: Vec<(Found, bool)> = self
            .mapping(frame, order, tickets)
            .into_iter()
            .map(|found| {
                let is_certain = self.leads_for_certain(found.word, tickets, None)
                    && self.is_root_settled(found.root, tickets)
                    && self.is_placed_for_certain(found.word.0, tickets);
                (found, is_certain)
            })
            .collect();
        for table in self.tables_in(&frames) {
            self.free_table(line, table, tickets);
        }
        let is_of = |stale: &Stale| stale.is_live() && frames.contains(&stale.word.0);
        if self.stale.values().flatten().any(is_of) {
            // It ends where the frame is given out.
            self.free_early.insert(frames.clone());
        }
        // What was taken away, and TLBs may have still.
        let certain = self.are_certain(&frames, tickets);
        for stale in self.stale.values_mut().flatten() {
            // What is there still is found by what maps it.
            if !certain
                || stale.remains != Remains::No
                || stale.writer.tickets.1 >= begin
                || !has(stale.kind, stale.level, &frames)
            {
                continue;
            }
            let (rule, what) = match stale.kind {
                Kind::Table(_) if stale.word.1 == ENTRIES => continue,
                Kind::Table(table) => (
                    Rule::TableFreed,
                    format!("table {table:#x} is free, and walk caches may have it"),
                ),
                _ => {
                    let gfn = stale.gfn;
                    let what = format!(
                        "a frame from {frame:#x} on is free, and TLBs may have it at guest frame {gfn:#x}"
                    );
                    (Rule::FrameFreed, what)
                }
            };
            let frames = frames.clone();
            stale.needs.push(Need { rule, line, end, what, frames: frames.clone(), used: None });
            self.free_early.insert(frames);
        }
        for (found, is_mapped_for_certain) in mapped {
            let what =
                format!("a frame from {frame:#x} on is free, and {} maps it", describe(&found));
            let rule = Rule::FrameFreed;
            let need = Need { rule, line, end, what, frames: frames.clone(), used: None };
            let certain = certain && is_mapped_for_certain;
            self.free_early.insert(frames.clone());
            self.add_live(&found, tickets, &need, certain);
            if certain {
                let since = Since::Mapped(self.tables.since(&found));
                self.note_overdue(found, since, need);
            }
        }
        self.lives.free(frames, tickets);
    }

    fn free_table(&mut self, line: u64, table: u64, tickets: Tickets) {
        let (begin, end) = tickets;
        let is_unlinked = self.hasten_unlink(table, end);
        let is_known_since = self.tables.get(table).is_some_and(|known| known.reach > begin);
        if !is_unlinked
            && is_known_since
            && self.lives.any_given_after(&(table..table + 1), begin).is_some()
        {
            // It is a table again.
            return;
        }
        if let Some(Place { root, level, gfn }) = self.tables.get(table).and_then(|one| one.place) {
            // It hangs in its tree still. That is for a root that no CPU is on any more.
            let what = format!("table {table:#x}, which guest frame {gfn:#x} is found by, is free");
            let (rule, frames) = (Rule::TableFreed, table..table + 1);
            let need = Need { rule, line, end, what, frames, used: None };
            let kind = Kind::Table(table);
            let word = (table, ENTRIES);
            let found = Found { word, root, level: level + 1, gfn, bits: 0, kind };
            let path = self.tables.path(table);
            let by = path.last().copied();
            let certain = self.are_certain(&(table..table + 1), tickets)
                && !self.may_be_elsewhere(table)
                && path.into_iter().all(|word| self.is_certain(word, tickets, false));
            self.hasten_enters(root, end);
            self.add_live(&found, tickets, &need, certain);
            self.free_early.insert(table..table + 1);
            if certain {
                self.note_overdue(found, Since::Led(by), need);
            }
            // TLBs may have what it had.
            let mut gone = Vec::new();
            self.tables.detach(table, &mut gone);
            for found in gone {
                self.add_unknown(&found, tickets, false);
            }
        }
        self.end_table(table, begin);
    }

    /// Whether what is known of the table in `frame` is of a life that was over before the frame is given out by an event
    /// that began at `begin`: it was not known then whether it came before the frame was free, or after.
    fn is_table_over(&self, frame: u64, begin: u64) -> bool {
        let waiting = self.waiting.get(&frame).into_iter().flatten();
        self.lives.of(frame).doubtful() < begin
            && self.tables.get(frame).is_none_or(|table| table.reach < begin)
            && waiting.map(|(_, record)| record.end).all(|end| end < begin)
    }

    /// The tables in `frames` of which something is known, or a write waits.
    fn tables_in(&self, frames: &Range<u64>) -> BTreeSet<u64> {
        let waiting = self.waiting.range(frames.clone()).map(|(table, _)| *table);
        self.tables.known_in(frames).into_iter().chain(waiting).collect()
    }

    /// Knows nothing more of a table whose frame is free, or was, by an event that began at `begin`.
    fn end_table(&mut self, table: u64, begin: u64) {
        self.lost(table);
        self.end_marked(table);
        self.waiting.remove(&table);
        self.forget_writes(table, begin);
        self.tables.forget(table);
    }

    /// The entries that map one of the frames, which are free, whatever is written down later.
    fn mapping(&mut self, frame: u64, order: u32, (begin, end): Tickets) -> Vec<Found> {
        loop {
            let mut found = self.tables.mapping(frame, order);
            let changes = |found: &Found| {
                let mut words = self.tables.path(found.word.0);
                words.push(found.word);
                self.hasten_change(found.root, &words, end)
            };
            if found.iter().any(changes) {
                continue;
            }
            found.retain(|found| {
                let Kind::Leaf(leaf) = found.kind else { return false };
                let last = (leaf.frame + pages(found.level)).min(frame + (1 << order));
                self.lives.any_given_after(&(leaf.frame.max(frame)..last), begin).is_none()
            });
            return found;
        }
    }

    /// Caches were cleaned of frames.
    pub(super) fn clean(&mut self, frames: &Range<u64>, end: u64) {
        if !self.options.caches_maintained {
            return;
        }
        let gives = |event: &Event| match *event {
            Event::Give { frame, order } => {
                frame < frames.end && frame + (1 << order) > frames.start
            }
            _ => false,
        };
        while !self.lives.of(frames.start).is_open && self.hasten(end, |one| gives(&one.event)) {}
        self.dirty.remove(frames.clone());
    }

    /// Whether a frame is free when an event comes at `tickets`, by what is known.
    pub(super) fn is_free(&mut self, frame: u64, tickets: Tickets) -> bool {
        self.any_free(&(frame..frame + 1), tickets).is_some()
    }

    fn any_free(&mut self, frames: &Range<u64>, (begin, end): Tickets) -> Option<u64> {
        loop {
            let frame = self.lives.any_free(frames, begin)?;
            if !self.hasten_give(frame, end) {
                return Some(frame);
            }
        }
    }

    /// What is wrong if one of `frames` is free for certain when an event comes at `tickets`, of which `what` says what it
    /// does to them.
    pub(super) fn free_for_certain(
        &mut self,
        frames: &Range<u64>,
        tickets: Tickets,
        what: &str,
    ) -> Option<String> {
        let frame = self.any_free(frames, tickets)?;
        let is_certain = self.are_given_for_certain(&(frame..frame + 1), tickets);
        is_certain.then(|| format!("frame {frame:#x} is free, and {what}"))
    }

    /// Reports what [`Checker::free_for_certain`] finds wrong.
    pub(super) fn check_given(
        &mut self,
        line: u64,
        frames: &Range<u64>,
        tickets: Tickets,
        what: &str,
    ) {
        if let Some(what) = self.free_for_certain(frames, tickets, what) {
            self.report(line, Rule::FreeFrame, what);
        }
    }

    /// Notes that `word` maps a frame that is free, since an event at `tickets`; `what` says so.
    ///
    /// A vCPU that is at a fault may give an entry back its value in the tree of a root that is closed. No CPU goes into
    /// that root again, and memory that was mapped there may be free. So once a CPU may have been in the guest, the rule is
    /// broken where one is there then or later.
    pub(super) fn map_free(
        &mut self,
        line: u64,
        word: Word,
        what: String,
        tickets: Tickets,
        certain: bool,
    ) {
        let (_, end) = tickets;
        let Some(found) = self.tables.found(word) else { return };
        let rule = Rule::FreeFrame;
        if self.may_be_entered(found.root, end) {
            let need = Need { rule, line, end, what, frames: 0..0, used: None };
            self.add_live(&found, tickets, &need, certain);
            if certain {
                let since = Since::Mapped(self.tables.since(&found));
                self.note_overdue(found, since, need);
            }
        } else if certain {
            self.report(line, rule, what);
        }
    }

    /// What is wrong if one of `frames` is a table for certain when an event comes at `tickets`, of which `what` says what
    /// it does to them.
    pub(super) fn table_for_certain(
        &mut self,
        frames: &Range<u64>,
        tickets: Tickets,
        what: &str,
    ) -> Option<String> {
        let (begin, end) = tickets;
        for table in self.tables.known_in(frames) {
            let linked = self.tables.get(table).and_then(|table| table.linked);
            if (linked.is_some_and(|(_, last)| last < begin) || self.comes_as_root(table, tickets))
                && !self.hasten_free(table, end)
                && self.are_certain(&(table..table + 1), tickets)
                && self.is_walked(table, tickets)
            {
                return Some(format!("table {table:#x} {what}"));
            }
        }
        None
    }

    /// Whether walks come to the table in `frame` for certain when an event comes at `tickets`: it is in a tree, or was, and
    /// walk caches may have it still.
    fn is_walked(&mut self, frame: u64, tickets: Tickets) -> bool {
        let (_, end) = tickets;
        if !self.hasten_unlink(frame, end) {
            return self.is_placed_for_certain(frame, tickets);
        }
        let all = self.stale.iter().flat_map(|(vmid, list)| list.iter().map(|one| (*vmid, one)));
        let mut tables = all.filter(|(_, stale)| stale.kind == Kind::Table(frame));
        tables.any(|(vmid, stale)| {
            stale.is_left_for_certain()
                && !self.may_be_complete(vmid, stale, end)
                && !self.may_have_been_over(vmid, (stale.writer.tickets.0, end))
        })
    }

    /// Reports what [`Checker::mapped_for_certain`] finds wrong.
    pub(super) fn check_unmapped(&mut self, line: u64, table: u64, tickets: Tickets, what: &str) {
        if let Some(what) = self.mapped_for_certain(table, tickets, what) {
            self.report(line, Rule::TableMapped, what);
        }
    }

    /// What is wrong if the table in `frame` is mapped for certain when an event comes at `tickets`, of which `what` says
    /// what it does to it.
    ///
    /// An entry that has outlived the frame counts where the frame was freed: it may stay in a tree that no CPU walks, and
    /// the frame become a table meanwhile.
    pub(super) fn mapped_for_certain(
        &mut self,
        frame: u64,
        tickets: Tickets,
        what: &str,
    ) -> Option<String> {
        let entries = self.mapping(frame, 0, tickets);
        let may_be_freed_since = |since| self.lives.of(frame).may_end_after(since);
        let is_of_this_life =
            |found: &&Found| !self.tables.since(found).is_some_and(may_be_freed_since);
        let found = entries.iter().find(is_of_this_life)?;
        let is_certain = self.are_certain(&(frame..frame + 1), tickets)
            && self.is_certain(found.word, tickets, false)
            && self.is_placed_for_certain(found.word.0, tickets);
        is_certain.then(|| format!("table {frame:#x} {what}, and {} maps it", describe(found)))
    }
}

/// Whether what an entry had is one of `frames`.
fn has(kind: Kind, level: u32, frames: &Range<u64>) -> bool {
    match kind {
        Kind::Absent => false,
        Kind::Table(table) => frames.contains(&table),
        Kind::Leaf(leaf) => leaf.frame < frames.end && leaf.frame + pages(level) > frames.start,
    }
}
