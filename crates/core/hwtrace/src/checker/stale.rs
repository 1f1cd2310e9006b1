//! What TLBs may have, and what they must not have any more.

use std::collections::BTreeSet;

use super::{Checker, Logged, Recent, note_use};
use crate::event::{Event, Family, Record, Scope};
use crate::lives::Tickets;
use crate::parse::ENTRIES;
use crate::rules::Rule;
use crate::tables::{Found, Word};
use crate::vmids::{Need, Stale, Writer};
use crate::window::Key;

impl Checker {
    /// What was in an entry is not there any more, since a write; that it was there is `certain`, or not.
    pub(super) fn add_stale(&mut self, found: &Found, writer: Writer, certain: bool) {
        for vmid in self.exposed(found.root) {
            // What was to be gone by something that is in the trace already: it is this one.
            let is_this = |one: &mut Stale| {
                let is_table = one.word.1 == ENTRIES && one.kind == found.kind;
                one.is_live() && (one.word == found.word || is_table)
            };
            let stale = self.stale.get_mut(&vmid).into_iter();
            let gone: Vec<Stale> = stale.flat_map(|stale| stale.extract_if(.., is_this)).collect();
            let (mut late, mut is_given) = (Vec::new(), false);
            for mut one in gone {
                self.forget_place((one.root, one.gfn));
                if one.certain {
                    late.append(&mut one.needs);
                    is_given |= one.is_given;
                }
            }
            self.add_stale_of(vmid, found, writer, (late, is_given, false, certain));
        }
    }

    /// What was to be gone from `word`, and is since a write of `new` at `tickets`, though its root is gone as well.
    pub(super) fn end_live(&mut self, word: Word, new: u64, tickets: Tickets, cpu: u32) {
        let is_certain = self.is_certain(word, tickets, true);
        let family = self.tables.get(word.0).and_then(|table| table.family);
        let is_seen_late = family.is_some_and(Family::sees_late);
        let is_this = |one: &&mut Stale| one.is_live() && one.word == word && one.bits != new;
        for stale in self.stale.values_mut().flatten().filter(is_this) {
            stale.end(Writer { cpu, tickets, is_seen_late }, is_certain);
        }
    }

    /// It should not be there any more, since an event at `tickets`; that it is there is `certain`, or not.
    pub(super) fn add_live(&mut self, found: &Found, tickets: Tickets, need: &Need, certain: bool) {
        let writer = Writer::nobody(tickets);
        let needs = if certain { vec![need.clone()] } else { Vec::new() };
        for vmid in self.exposed(found.root) {
            self.add_stale_of(vmid, found, writer, (needs.clone(), false, true, certain));
        }
    }

    /// TLBs may have it still, though the table that had it is free since an event at `tickets`; or is there still, if it
    /// is `live`. No rule asks for more.
    pub(super) fn add_unknown(&mut self, found: &Found, tickets: Tickets, live: bool) {
        for vmid in self.exposed(found.root) {
            let needs = (Vec::new(), live, false);
            self.push_stale(vmid, Stale::new(found, Writer::nobody(tickets), needs));
        }
    }

    /// VMIDs under which TLBs may have something of `root`.
    pub(super) fn exposed(&self, root: u64) -> Vec<u16> {
        let exposed = self.exposures.iter().map(|(vmid, exposure)| (*vmid, exposure.root));
        let lingering = self.lingering.iter().map(|(vmid, root)| (*vmid, *root));
        let all = exposed.chain(lingering).filter(|(_, of)| *of == Some(root));
        all.map(|(vmid, _)| vmid).collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn add_stale_of(
        &mut self,
        vmid: u16,
        found: &Found,
        writer: Writer,
        (needs, is_given, live, certain): (Vec<Need>, bool, bool, bool),
    ) {
        let (begin, done) = writer.tickets;
        let exposure = self.exposures.get(&vmid).filter(|one| one.root == Some(found.root));
        let is_exposed = exposure.is_some_and(|exposure| exposure.since < begin);
        // It may have been invalidated by one that is remembered no more.
        let certain = certain
            && is_exposed
            && begin >= self.forgotten.1
            && !self.may_be_over(vmid, writer.tickets)
            && !self.may_be_reused(vmid, found.root, done);
        let mut stale = Stale::new(found, writer, (needs, live, certain));
        // Of a write that ended late, or waited for one before, they are in the log.
        let after = self.log.iter().rev().take_while(|logged| logged.latest > begin);
        let reaching = after.filter(|logged| {
            logged.end > begin
                && logged.vmid.is_none_or(|of| of == vmid)
                && stale.is_reached(logged.scope)
        });
        let is_ordered = |logged: &&Logged| {
            let is_own = !writer.is_seen_late || logged.cpu == writer.cpu;
            let barrier = || self.barrier_before(writer.cpu, logged.end).max(logged.barrier);
            is_own || done > logged.begin || barrier() > begin
        };
        let (reaching, unordered): (Vec<&Logged>, Vec<&Logged>) = reaching.partition(is_ordered);
        let complete = reaching.iter().filter_map(|logged| logged.complete).min();
        // Of those that are remembered it is not known when their CPUs' barriers began.
        let is_seen = |logged: &&&Logged| !writer.is_seen_late || logged.cpu == writer.cpu;
        let is_reached_for_certain = reaching
            .iter()
            .filter(is_seen)
            .any(|logged| logged.complete.is_some() && logged.begin > done);
        let left = reaching.iter().filter(|logged| logged.complete.is_none());
        let by = left.map(|logged| (logged.cpu, logged.id)).collect();
        let unordered = unordered.first().map(|logged| (logged.line, logged.cpu));
        (stale.by, stale.unordered, stale.is_given) = (by, unordered, is_given);
        let Some((sync, end)) = complete else {
            self.push_stale(vmid, stale);
            return;
        };
        if !is_reached_for_certain {
            stale.maybe_over = sync;
            self.push_stale(vmid, stale);
            return;
        }
        let stale = self.judge(vmid, stale, sync);
        self.recent.push_back(Recent { vmid, stale, sync, end });
    }

    pub(super) fn push_stale(&mut self, vmid: u16, stale: Stale) {
        *self.stale_places.entry((stale.root, stale.gfn)).or_default() += 1;
        self.stale.entry(vmid).or_default().push(stale);
    }

    /// Whether the guest of another root than `root` may have been entered under `vmid` before an event that ends at `end`,
    /// by what is written down later: what TLBs have under it is of that one then.
    pub(super) fn may_be_reused(&self, vmid: u16, root: u64, end: u64) -> bool {
        // The root that it is of may be one that was there before.
        let is_over =
            |one: &Record| self.root_lives.get(&root).is_some_and(|life| life.reach > one.begin);
        let is_other = |one: &Record| matches!(one.event, Event::Enter { top, .. } if top != root || is_over(one));
        self.window.of(Key::Entered(vmid), end).any(is_other)
    }

    pub(super) fn forget_place(&mut self, place: (u64, u64)) {
        if let Some(count) = self.stale_places.get_mut(&place) {
            *count -= 1;
            if *count == 0 {
                self.stale_places.remove(&place);
            }
        }
    }

    /// Notes which CPUs were in the guest before `sync`.
    pub(super) fn note_uses(&self, vmid: u16, stale: &mut Stale, sync: u64) {
        if stale.needs.is_empty() {
            return;
        }
        let inside = self.exposures.get(&vmid).into_iter().flat_map(|exposure| &exposure.inside);
        for (tlb, entered) in inside {
            // That it has left may be written down later.
            let leave = Event::Leave { tlb: *tlb, vmid };
            let leaves = self.window.begun(sync).filter(|(_, one)| one.event == leave);
            let left = leaves.map(|(_, one)| one.begin).min().unwrap_or(sync);
            for need in &mut stale.needs {
                note_use(need, *entered, left);
            }
        }
    }

    /// Says what was broken of what is invalidated at `sync`, and not before. Gives it back.
    pub(super) fn judge(&mut self, vmid: u16, mut stale: Stale, sync: u64) -> Stale {
        if sync == u64::MAX {
            self.note_uses(vmid, &mut stale, sync);
        }
        let sync = sync.min(stale.maybe_over);
        for need in std::mem::take(&mut stale.needs) {
            let Some(limit) = need.limit().filter(|limit| stale.certain && *limit < sync) else {
                continue;
            };
            // What is there still is walked again where a CPU goes in later.
            let since = stale.writer.tickets.0;
            if self.may_be_complete(vmid, &stale, limit)
                || !stale.is_live() && self.may_have_been_over(vmid, (since, limit + 1))
            {
                continue;
            }
            let Need { rule, line, what, .. } = need;
            if let Some((line, cpu)) = stale.unordered {
                // Whether it would have come soon enough is another question.
                let what = format!(
                    "no barrier orders a write of CPU {} before this invalidation of CPU {cpu}: {what} (VMID {vmid})",
                    stale.writer.cpu
                );
                self.report(line, Rule::NoBarrier, what);
            }
            self.report(line, rule, format!("{what} (VMID {vmid})"));
        }
        stale
    }

    /// Whether what is stale may be invalidated by `limit`, by what is written down later.
    pub(super) fn may_be_complete(&self, vmid: u16, stale: &Stale, limit: u64) -> bool {
        let began = limit.saturating_add(1);
        let reaches = |one: &Record| {
            let (of, scope) = match one.event {
                Event::Tlbi { vmid, scope, .. } => (Some(vmid), scope),
                Event::TlbiEverything { .. } => (None, Scope::All),
                _ => return false,
            };
            of.is_none_or(|of| of == vmid) && stale.is_reached(scope)
        };
        let completes = |one: &Record| {
            let Event::Sync { id } = one.event else { return false };
            let is_issued = |by: &Record| by.cpu == one.cpu && reaches(by);
            stale.by.iter().any(|(cpu, by)| *cpu == one.cpu && *by <= id)
                || self.window.find(began, is_issued).is_some()
        };
        self.window.find(began, completes).is_some()
    }
}
