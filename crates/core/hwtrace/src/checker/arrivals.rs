//! What comes into a tree: by the write of an entry, or with a table that was written or filled before an entry came to
//! lead to it, or before it became a root.

use std::ops::Range;

use super::Checker;
use crate::entries::Kind;
use crate::event::{Event, Family};
use crate::lives::Tickets;
use crate::parse::ENTRIES;
use crate::rules::Rule;
use crate::tables::{Found, Place, Word, pages};

/// What is wrong with something that comes into a tree.
#[derive(Debug, Default)]
pub(super) struct Wrong {
    /// It is a frame for a guest that is free.
    pub(super) free: Option<String>,
    /// The other rules that it breaks, and how.
    pub(super) rules: Vec<(Rule, String)>,
}

/// Why a table comes into a tree.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) line: u64,
    pub(super) tickets: Tickets,
    /// The entry that comes to lead there; none, where the table is part of a root.
    pub(super) by: Option<Word>,
}

impl Checker {
    /// What is wrong with what an entry comes to have at `tickets`.
    pub(super) fn check_new(&mut self, found: &Found, family: Family, tickets: Tickets) -> Wrong {
        match found.kind {
            Kind::Absent => Wrong::default(),
            Kind::Table(below) => Wrong { free: None, rules: self.check_table(below, tickets) },
            Kind::Leaf(leaf) => {
                let frames = leaf.frame..leaf.frame + pages(found.level);
                let how = format!("is mapped at guest frame {:#x}", found.gfn);
                let free = self.free_for_certain(&frames, tickets, &how);
                let table = self.table_for_certain(&frames, tickets, &how);
                let mut rules = Vec::new();
                rules.extend(table.map(|what| (Rule::TableMapped, what)));
                if family.goes_past_caches() {
                    let unclean = self.unclean_for_certain(&frames, tickets, &how);
                    rules.extend(unclean.map(|what| (Rule::NotCleaned, what)));
                }
                Wrong { free, rules }
            }
        }
    }

    /// Holds against the rules what comes into a tree with the table in `frame`, which is there now, as if each entry were
    /// written at that time. That a walk comes to the table is `certain`, or not.
    pub(super) fn check_arrivals(&mut self, frame: u64, arrival: &Arrival, certain: bool) {
        let Arrival { line, tickets, by } = *arrival;
        let Some(family) = self.tables.get(frame).and_then(|table| table.family) else { return };
        let (mut tables, mut come) = (vec![frame], Vec::new());
        while let Some(table) = tables.pop() {
            for word in self.tables.present(table).into_iter().map(|index| (table, index)) {
                let Some(found) = self.tables.found(word) else { break };
                let Wrong { free, rules } = self.check_new(&found, family, tickets);
                let below = self.table_of(&found);
                if self.tables.found(word) != Some(found)
                    || free.is_none() && rules.is_empty() && below.is_none()
                {
                    continue;
                }
                let certain = certain && self.leads_for_certain(word, tickets, by);
                for (rule, what) in rules.into_iter().filter(|_| certain) {
                    self.report(line, rule, what);
                }
                if let Some(what) = free {
                    self.map_free(line, word, what, tickets, certain);
                }
                tables.extend(below);
                come.extend(below.map(|below| (below, certain)));
            }
        }
        for (table, certain) in come {
            self.tables.table(table).linked.get_or_insert(tickets);
            self.lives.link(table..table + 1, tickets);
            if !certain {
                self.lives.doubt_link(table..table + 1, tickets.1);
            }
        }
    }

    /// The table that is in a tree by an entry.
    pub(super) fn table_of(&self, found: &Found) -> Option<u64> {
        let Kind::Table(below) = found.kind else { return None };
        let level = found.level.checked_sub(1)?;
        let place = Place { root: found.root, level, gfn: found.gfn };
        self.tables.get(below).is_some_and(|table| table.place == Some(place)).then_some(below)
    }

    /// What is wrong with the table in frame `below`, to which an entry comes to lead.
    fn check_table(&mut self, below: u64, tickets: Tickets) -> Vec<(Rule, String)> {
        let (_, end) = tickets;
        let known = self.tables.get(below);
        if known.is_some_and(|known| known.linked.is_some() && known.place.is_none()) {
            // Another one, in the same frame.
            self.hasten_give(below, end);
        }
        let frames = below..below + 1;
        let free = self.free_for_certain(&frames, tickets, "comes into a tree as a table");
        let mapped = self.mapped_for_certain(below, tickets, "comes into a tree");
        let filled = |checker: &Self| checker.tables.get(below).map_or(0, |table| table.filled);
        while filled(self) < ENTRIES && self.hasten_fill(below, end) {}
        let free = free.map(|what| (Rule::FreeFrame, what));
        free.into_iter().chain(mapped.map(|what| (Rule::TableMapped, what))).collect()
    }

    /// What is wrong if one of `frames` was not cleaned for certain, and is mapped by an event at `tickets`; `how` says
    /// where.
    fn unclean_for_certain(
        &mut self,
        frames: &Range<u64>,
        tickets: Tickets,
        how: &str,
    ) -> Option<String> {
        let (_, end) = tickets;
        loop {
            let frame = self.dirty.any_in(frames)?;
            let cleans = |event: &Event| match *event {
                Event::Clean { frame: first, count } | Event::Flush { frame: first, count } => {
                    (first..first + count).contains(&frame)
                }
                _ => false,
            };
            if !self.hasten(end, |one| cleans(&one.event)) {
                let is_certain = self.are_given_for_certain(&(frame..frame + 1), tickets);
                return is_certain.then(|| format!("frame {frame:#x} {how}"));
            }
        }
    }
}
