//! What is free, and stays where walks come to: for guests that are entered later, under whatever VMID.

use super::Checker;
use crate::entries::Kind;
use crate::lives::Tickets;
use crate::tables::{Found, Word};
use crate::vmids::{Need, Stale, Writer};

/// A frame or a table that is free, and that a walk may come to still.
#[derive(Debug)]
pub(super) struct Overdue {
    found: Found,
    since: Since,
    need: Need,
}

/// By what it is known that it is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Since {
    /// The entry has mapped it since an event with this first ticket.
    Mapped(Option<u64>),
    /// This entry leads to the table; none, if it is part of a root.
    Led(Option<Word>),
}

impl Checker {
    /// Notes that something of the tree of a root is free.
    pub(super) fn note_overdue(&mut self, found: Found, since: Since, need: Need) {
        let all = self.overdue.entry(found.root).or_default();
        all.retain(|one| (one.found.word, one.need.rule) != (found.word, need.rule));
        all.push(Overdue { found, since, need });
    }

    /// Notes that entry `by`, of the tree of the root at `root`, is written: what it led to is found by it no more.
    pub(super) fn end_overdue(&mut self, root: u64, by: Word) {
        if let Some(all) = self.overdue.get_mut(&root) {
            all.retain(|one| one.since != Since::Led(Some(by)));
        }
    }

    /// TLBs may have what is in the tree of the root at `top` under `vmid` from now on, since a CPU enters the guest at
    /// `tickets`: what should not be there any more, too.
    pub(super) fn expose_overdue(&mut self, vmid: u16, top: u64, tickets: Tickets) {
        let Some(mut all) = self.overdue.remove(&top) else { return };
        all.retain(|one| self.is_still_there(one));
        for Overdue { found, since, need } in &all {
            let is_certain = match *since {
                Since::Mapped(_) => {
                    self.leads_for_certain(found.word, tickets, None)
                        && self.is_placed_for_certain(found.word.0, tickets)
                }
                Since::Led(Some(by)) => {
                    self.leads_for_certain(by, tickets, None)
                        && self.are_certain(&(found.word.0..found.word.0 + 1), tickets)
                }
                Since::Led(None) => self.are_certain(&(found.word.0..found.word.0 + 1), tickets),
            };
            if is_certain {
                let writer = Writer::nobody(tickets);
                let mut stale = Stale::new(found, writer, (vec![need.clone()], true, true));
                stale.is_given = self.lives.any_given_after(&need.frames, need.end).is_some();
                self.push_stale(vmid, stale);
            }
        }
        if !all.is_empty() {
            self.overdue.insert(top, all);
        }
    }

    fn is_still_there(&self, Overdue { found, since, .. }: &Overdue) -> bool {
        let table = found.word.0;
        match *since {
            Since::Mapped(_) => {
                self.tables.found(found.word) == Some(*found)
                    && Since::Mapped(self.tables.since(found)) == *since
            }
            // The frame may be another table meanwhile. A walk comes to it all the same.
            Since::Led(Some(by)) => self.tables.found(by).is_some_and(|above| {
                above.kind == Kind::Table(table) && self.table_of(&above).is_none()
            }),
            // Until the root is gone.
            Since::Led(None) => true,
        }
    }
}
