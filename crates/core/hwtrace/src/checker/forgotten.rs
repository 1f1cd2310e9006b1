//! What takes the place of something that TLBs may have still.

use std::ops::Range;

use super::Checker;
use crate::entries::Kind;
use crate::lives::Tickets;
use crate::rules::Rule;
use crate::tables::{Found, Word, pages};
use crate::vmids::{Need, Stale};

/// A write that has come to be in a tree.
#[derive(Clone, Debug)]
struct Made {
    word: Word,
    tickets: Tickets,
    root: u64,
    level: u32,
    /// The guest frames that the entry stands for.
    gfns: Range<u64>,
}

impl Checker {
    /// All TLBs must have forgotten what was where an entry and the tables that it leads to have something else now, since
    /// the write on `line`, before which the entry was as `before` says: at the same guest frames, by the same entry, or by
    /// one of a table that was there.
    pub(super) fn check_forgotten(&mut self, line: u64, tickets: Tickets, before: &Found) {
        let Found { word, root, level, gfn, .. } = *before;
        let (_, end) = tickets;
        let gfns = gfn..gfn + pages(level);
        let is_late = end < self.synced;
        let mut places = self.stale_places.range((root, gfns.start)..(root, gfns.end));
        let is_any = places.next().is_some();
        let made = Made { word, tickets, root, level, gfns };
        let need = |stale: &Stale| {
            let Stale { word: (table, index), bits, gfn, .. } = *stale;
            let what = format!(
                "entry {index} of table {table:#x} was {bits:#x}, and guest frame {gfn:#x} has another value before all TLBs have forgotten that"
            );
            Need { rule: Rule::BreakBeforeMake, line, end, what, frames: 0..0, used: None }
        };
        if is_any {
            let mut all = std::mem::take(&mut self.stale);
            for (vmid, list) in &mut all {
                let replaced = |stale: &&mut Stale| self.takes_place_of(&made, *vmid, stale);
                for stale in list.iter_mut().filter(replaced) {
                    stale.needs.push(need(stale));
                }
            }
            self.stale = all;
        }
        // A write that waited for the one before may come after the invalidation that it did not wait for.
        if is_late {
            let late = self.recent.iter().filter(|recent| {
                end < recent.sync
                    && recent.stale.certain
                    && self.takes_place_of(&made, recent.vmid, &recent.stale)
                    && !self.may_be_complete(recent.vmid, &recent.stale, end)
            });
            let broken: Vec<_> = late.map(|recent| (need(&recent.stale), recent.vmid)).collect();
            for (Need { rule, line, what, .. }, vmid) in broken {
                self.report(line, rule, format!("{what} (VMID {vmid})"));
            }
        }
    }

    /// Whether a write gives what was stale before another value, in whatever order, and needs break-before-make for that.
    fn takes_place_of(&self, made: &Made, vmid: u16, stale: &Stale) -> bool {
        if stale.root != made.root || stale.level > made.level || !made.gfns.contains(&stale.gfn) {
            return false;
        }
        let (begin, end) = made.tickets;
        // The writes of one entry are in order by their values.
        let is_before = if stale.word == made.word {
            stale.writer.tickets != made.tickets
        } else {
            !stale.is_live() && stale.writer.tickets.1 < begin
        };
        let is_exposed = || {
            let is_of = |root| root == Some(made.root);
            self.exposures.get(&vmid).is_some_and(|one| is_of(one.root))
                && !self.may_be_reused(vmid, made.root, end)
        };
        is_before && is_exposed() && self.needs_break(made, stale)
    }

    /// Whether what is at the place of `stale` now, for certain, must not follow it at once.
    fn needs_break(&self, made: &Made, stale: &Stale) -> bool {
        let walked = self.tables.walked(made.root, stale.gfn);
        let mut found = walked.into_iter().filter_map(|word| self.tables.found(word));
        let Some(found) = found.rfind(|found| found.level >= stale.level) else {
            return false;
        };
        let family = self.tables.get(found.word.0).and_then(|table| table.family);
        let is_broken = family.is_some_and(|family| {
            if found.level == stale.level {
                family.requires_break(stale.level, stale.bits, found.bits)
            } else {
                family.breaks() && matches!(found.kind, Kind::Leaf(_))
            }
        });
        is_broken
            && (found.word == made.word
                || self.leads_for_certain(found.word, made.tickets, Some(made.word)))
    }
}
