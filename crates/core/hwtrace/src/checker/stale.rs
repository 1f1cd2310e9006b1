//! What TLBs may have, and what they must not have any more.

use std::collections::BTreeSet;

use super::{Checker, Issued, LOGGED, Logged, RECENT, Recent, Whole, note_use};
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
                one.live && (one.word == found.word || is_table)
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
        let is_this = |one: &&mut Stale| one.live && one.word == word && one.bits != new;
        for stale in self.stale.values_mut().flatten().filter(is_this) {
            stale.live = false;
            stale.writer = Writer { cpu, tickets, is_seen_late };
            stale.certain &= is_certain;
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
        let is_exposed = self.exposures.get(&vmid).is_some_and(|exposure| exposure.since < begin);
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

    pub(super) fn issue(&mut self, line: u64, record: &Record, vmid: Option<u16>, scope: Scope) {
        let Record { begin, end, cpu, ref event } = *record;
        let (Event::Tlbi { id, .. } | Event::TlbiEverything { id }) = *event else { return };
        self.check_ordered(line, cpu, (begin, end), "the invalidation");
        if scope == Scope::All {
            self.hasten_leaves(vmid, end);
        }
        let mut all = std::mem::take(&mut self.stale);
        for (of, list) in all.iter_mut().filter(|(of, _)| vmid.is_none_or(|vmid| vmid == **of)) {
            for stale in list {
                if stale.live && self.window.of(Key::Word(stale.word), end).next().is_some() {
                    // It may be gone before that.
                    stale.certain = false;
                }
                if stale.writer.tickets.0 >= end || !stale.is_reached(scope) {
                    continue;
                }
                if self.is_ordered(stale, cpu, (begin, end)) {
                    stale.by.push((cpu, id));
                    if stale.writer.tickets.1 < begin
                        && self.is_ordered_for_certain(stale, cpu, begin)
                    {
                        stale.by_for_certain.push((cpu, id));
                    }
                } else if stale.maybe_over == u64::MAX && !self.may_be_complete(*of, stale, end) {
                    stale.unordered.get_or_insert((line, cpu));
                }
            }
        }
        self.stale = all;
        let covered = |of: &u16| scope == Scope::All && vmid.is_none_or(|vmid| vmid == *of);
        let exposed = self.exposures.iter().filter(|(of, _)| covered(of));
        let whole = exposed.map(|(vmid, exposure)| Whole {
            vmid: *vmid,
            enters: exposure.inside.is_empty().then_some(exposure.enters),
            stayed: u64::MAX,
            entered: u64::MAX,
        });
        let whole = whole.collect();
        let number = self.forgotten.0 + self.log.len() as u64;
        self.issued.entry(cpu).or_default().push(Issued { id, number, begin, end, whole, vmid });
        let latest = self.log.back().map_or(end, |last| last.latest.max(end));
        let barrier = self.barrier_before(cpu, end);
        let complete = None;
        self.log.push_back(Logged {
            line,
            cpu,
            id,
            begin,
            end,
            latest,
            barrier,
            vmid,
            scope,
            complete,
        });
        if self.log.len() > LOGGED
            && let Some(oldest) = self.log.pop_front()
        {
            self.forgotten = (self.forgotten.0 + 1, oldest.latest);
        }
        // It may be complete by what was taken before.
        if let Some((last, tickets)) = self.completed.get(&cpu).copied()
            && last >= id
            && tickets.1 > begin
        {
            self.sync(cpu, id, tickets);
        }
    }

    /// All that `cpu` has issued up to `id` is complete.
    pub(super) fn sync(&mut self, cpu: u32, id: u64, (begin, end): Tickets) {
        let invalidates = |event: &Event| match *event {
            Event::Tlbi { id: of, .. } | Event::TlbiEverything { id: of } => of <= id,
            _ => false,
        };
        while self.hasten(end, |one| one.cpu == cpu && invalidates(&one.event)) {}
        let completed = self.completed.entry(cpu).or_default();
        if completed.0 <= id {
            *completed = (id, (begin, end));
        }
        let Some(issued) = self.issued.get_mut(&cpu) else { return };
        let done: Vec<Issued> = issued.extract_if(.., |issued| issued.id <= id).collect();
        self.synced = self.synced.max(begin);
        for Issued { id: own, number, begin: first, end: issued, whole, vmid } in done {
            let complete = self.may_be_complete_since((cpu, own), (begin, end));
            let place = number.checked_sub(self.forgotten.0);
            if let Some(logged) = place.and_then(|place| self.log.get_mut(place as usize)) {
                logged.complete = Some((complete, end));
            }
            let lists: Vec<u16> = match vmid {
                Some(vmid) => vec![vmid],
                None => self.stale.keys().copied().collect(),
            };
            for vmid in lists {
                // Of a VMID that no CPU has entered since, nothing is left.
                let is_idle = whole.iter().any(|one| one.vmid == vmid && self.is_idle_since(one));
                let may_be_entered = self.window.of(Key::Entered(vmid), end).next().is_some();
                let ended = is_idle && !may_be_entered;
                let may_be_idle =
                    |one: &Whole| one.vmid == vmid && self.may_be_idle(one, issued, complete);
                let may_be_ended = is_idle || whole.iter().any(may_be_idle);
                let Some(stale) = self.stale.get_mut(&vmid) else { continue };
                let is_it = |(by, number): &(u32, u64)| *by == cpu && *number <= id;
                let is_done = |stale: &mut Stale| ended || stale.by.iter().any(is_it);
                let resolved: Vec<Stale> = stale.extract_if(.., is_done).collect();
                if may_be_ended {
                    for stale in stale.iter_mut() {
                        stale.certain = false;
                    }
                }
                if stale.is_empty() {
                    self.stale.remove(&vmid);
                }
                for mut stale in resolved {
                    self.note_uses(vmid, &mut stale, begin);
                    self.forget_place((stale.root, stale.gfn));
                    if ended || stale.by_for_certain.iter().any(is_it) {
                        let stale = self.judge(vmid, stale, begin);
                        self.recent.push_back(Recent { vmid, stale, sync: begin, end });
                    } else {
                        let by = stale.by.extract_if(.., |by| is_it(by));
                        let since = by.map(|by| self.may_be_complete_since(by, (begin, end)));
                        let since = since.fold(stale.maybe_over, u64::min);
                        stale.maybe_over = since;
                        self.push_stale(vmid, stale);
                    }
                }
            }
            for whole in whole {
                if self.is_idle_since(&whole) {
                    self.end_exposure(whole.vmid, (first, end));
                } else if self.may_be_idle(&whole, issued, complete)
                    && let Some(exposure) = self.exposures.get_mut(&whole.vmid)
                {
                    // In another order it was idle.
                    exposure.since = exposure.since.max(whole.entered);
                }
            }
        }
        while self.recent.len() > RECENT {
            self.horizon = self.recent.pop_front().map_or(self.horizon, |recent| recent.end);
        }
    }

    /// When an invalidation, by CPU and number, may have been complete first, which is so by an event at `tickets`, and perhaps
    /// by one that is written down later.
    fn may_be_complete_since(&self, (cpu, own): (u32, u64), (begin, end): Tickets) -> u64 {
        let covers =
            |one: &&Record| one.cpu == cpu && matches!(one.event, Event::Sync { id } if id >= own);
        self.window.of(Key::Sync, end).filter(covers).fold(begin, |least, one| least.min(one.begin))
    }

    /// TLBs have nothing under `vmid` any more, since an invalidation that was issued, and complete, at `tickets`.
    fn end_exposure(&mut self, vmid: u16, (begin, end): Tickets) {
        let Some(exposure) = self.exposures.remove(&vmid) else { return };
        let may_be_entered = self.window.of(Key::Entered(vmid), end).next().is_some();
        if may_be_entered || exposure.out > begin {
            self.lingering.insert(vmid, exposure.root);
        } else {
            self.lingering.remove(&vmid);
            self.mixed.remove(&vmid);
        }
    }

    /// Whether all that TLBs have under `vmid` may be invalidated when an event comes at `tickets`, by what is written
    /// down later.
    fn may_be_over(&self, vmid: u16, (begin, end): Tickets) -> bool {
        self.window.of(Key::Sync, end).any(|sync| {
            let Event::Sync { id: last } = sync.event else { return false };
            let issued = self.issued.get(&sync.cpu).into_iter().flatten();
            let mut issued = issued.filter(|one| one.id <= last);
            let ends = |one: &Issued| {
                let mut whole = one.whole.iter().filter(|whole| whole.vmid == vmid);
                whole.any(|whole| {
                    whole.entered >= begin
                        && whole.stayed >= sync.begin
                        && !self.is_any_inside(vmid, one.end, sync.begin)
                })
            };
            let covers = |one: &Record| {
                let is_it = match one.event {
                    Event::Tlbi { id, vmid: of, scope: Scope::All } => of == vmid && id <= last,
                    Event::TlbiEverything { id } => id <= last,
                    _ => false,
                };
                is_it && one.cpu == sync.cpu && !self.is_any_inside(vmid, one.end, sync.begin)
            };
            issued.any(ends) || self.window.find(end, covers).is_some()
        })
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

    /// Whether no CPU was in a guest when it was invalidated, nor has gone in since.
    fn is_idle_since(&self, whole: &Whole) -> bool {
        self.exposures
            .get(&whole.vmid)
            .is_some_and(|exposure| Some(exposure.enters) == whole.enters)
    }

    /// Whether no CPU was in a guest, in one order or another, between an invalidation of it that was issued until `issued`,
    /// and its completion, which began at `sync`.
    fn may_be_idle(&self, whole: &Whole, issued: u64, sync: u64) -> bool {
        whole.stayed >= sync && !self.is_any_inside(whole.vmid, issued, sync)
    }

    /// Whether some CPU that is in a guest was there for certain at some time between an invalidation that was issued until
    /// `issued`, and its completion, which began at `sync`.
    fn is_any_inside(&self, vmid: u16, issued: u64, sync: u64) -> bool {
        let inside = self.exposures.get(&vmid).into_iter().flat_map(|exposure| &exposure.inside);
        let mut inside = inside.filter(|(_, entered)| **entered < sync);
        let leaves = |tlb: u32| self.window.of(Key::Stay((tlb, vmid)), issued).next().is_some();
        inside.any(|(tlb, _)| !leaves(*tlb))
    }

    fn forget_place(&mut self, place: (u64, u64)) {
        if let Some(count) = self.stale_places.get_mut(&place) {
            *count -= 1;
            if *count == 0 {
                self.stale_places.remove(&place);
            }
        }
    }

    /// Notes which CPUs were in the guest before `sync`.
    fn note_uses(&self, vmid: u16, stale: &mut Stale, sync: u64) {
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
            if self.may_be_complete(vmid, &stale, limit) {
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
