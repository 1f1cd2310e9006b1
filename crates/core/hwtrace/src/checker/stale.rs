//! What TLBs may have, and what they must not have any more.

use super::{Checker, Issued, LOGGED, Logged, RECENT, Recent, Whole, note_use};
use crate::event::{Event, Record, Scope};
use crate::lives::Tickets;
use crate::parse::ENTRIES;
use crate::rules::Rule;
use crate::tables::Found;
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
            let mut late = Vec::new();
            for mut one in gone {
                self.forget_place((one.root, one.gfn));
                late.append(&mut one.needs);
            }
            self.add_stale_of(vmid, found, writer, (late, false, certain));
        }
    }

    /// It should not be there any more, since an event that began at `begin`; that it is there is `certain`, or not.
    pub(super) fn add_live(&mut self, found: &Found, begin: u64, need: &Need, certain: bool) {
        let writer = Writer::nobody(begin);
        let needs = if certain { vec![need.clone()] } else { Vec::new() };
        for vmid in self.exposed(found.root) {
            self.add_stale_of(vmid, found, writer, (needs.clone(), true, certain));
        }
    }

    /// VMIDs under which TLBs may have something of `root`.
    pub(super) fn exposed(&self, root: u64) -> Vec<u16> {
        let exposures = self.exposures.iter().filter(|(_, exposure)| exposure.root == Some(root));
        exposures.map(|(vmid, _)| *vmid).collect()
    }

    fn add_stale_of(
        &mut self,
        vmid: u16,
        found: &Found,
        writer: Writer,
        (needs, live, certain): (Vec<Need>, bool, bool),
    ) {
        let (begin, done) = writer.tickets;
        let is_exposed = self.exposures.get(&vmid).is_some_and(|exposure| exposure.since < begin);
        // It may have been invalidated by one that is remembered no more.
        let certain = certain
            && is_exposed
            && begin >= self.forgotten.1
            && !self.may_be_over(vmid, writer.tickets);
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
            is_own || done > logged.end || barrier() > begin
        };
        let (reaching, unordered): (Vec<&Logged>, Vec<&Logged>) = reaching.partition(is_ordered);
        let complete = reaching.iter().filter_map(|logged| logged.complete).min();
        let by = reaching.iter().map(|logged| (logged.cpu, logged.id)).collect();
        let unordered = unordered.first().map(|logged| (logged.line, logged.cpu));
        (stale.by, stale.unordered) = (by, unordered);
        if let Some((sync, end)) = complete {
            let stale = self.judge(vmid, stale, sync);
            self.recent.push_back(Recent { vmid, stale, sync, end });
            return;
        }
        self.push_stale(vmid, stale);
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
        for (_, list) in all.iter_mut().filter(|(of, _)| vmid.is_none_or(|vmid| vmid == **of)) {
            for stale in list {
                if stale.writer.tickets.0 >= end || !stale.is_reached(scope) {
                    continue;
                }
                if self.is_ordered(stale, cpu, (begin, end)) {
                    stale.by.push((cpu, id));
                } else {
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
        self.issued.entry(cpu).or_default().push(Issued { id, number, end, whole, vmid });
        let latest = self.log.back().map_or(end, |last| last.latest.max(end));
        let barrier = self.barrier_before(cpu, end);
        let complete = None;
        self.log.push_back(Logged { line, cpu, id, end, latest, barrier, vmid, scope, complete });
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
        for Issued { number, end: issued, whole, vmid, .. } in done {
            let place = number.checked_sub(self.forgotten.0);
            if let Some(logged) = place.and_then(|place| self.log.get_mut(place as usize)) {
                logged.complete = Some((begin, end));
            }
            let lists: Vec<u16> = match vmid {
                Some(vmid) => vec![vmid],
                None => self.stale.keys().copied().collect(),
            };
            for vmid in lists {
                // Of a VMID that no CPU has entered since, nothing is left.
                let ended = whole.iter().any(|one| one.vmid == vmid && self.is_idle_since(one));
                let Some(stale) = self.stale.get_mut(&vmid) else { continue };
                let is_done = |stale: &mut Stale| {
                    ended || stale.by.iter().any(|(by, number)| *by == cpu && *number <= id)
                };
                let resolved: Vec<Stale> = stale.extract_if(.., is_done).collect();
                if stale.is_empty() {
                    self.stale.remove(&vmid);
                }
                for mut stale in resolved {
                    self.note_uses(vmid, &mut stale, begin);
                    self.forget_place((stale.root, stale.gfn));
                    let stale = self.judge(vmid, stale, begin);
                    self.recent.push_back(Recent { vmid, stale, sync: begin, end });
                }
            }
            for whole in whole {
                if self.is_idle_since(&whole) {
                    self.exposures.remove(&whole.vmid);
                } else if whole.stayed >= begin
                    && !self.is_any_inside(whole.vmid, issued, begin)
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

    /// Whether no CPU was in a guest when it was invalidated, nor has gone in since.
    fn is_idle_since(&self, whole: &Whole) -> bool {
        self.exposures
            .get(&whole.vmid)
            .is_some_and(|exposure| Some(exposure.enters) == whole.enters)
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
        for need in std::mem::take(&mut stale.needs) {
            let Some(limit) = need.limit().filter(|limit| stale.certain && *limit < sync) else {
                continue;
            };
            if self.may_be_complete(vmid, &stale, limit) {
                continue;
            }
            let Need { rule, line, what, .. } = need;
            if let Some((line, cpu)) = stale.unordered {
                let what = format!(
                    "no barrier orders a write of CPU {} before this invalidation of CPU {cpu}: {what} (VMID {vmid})",
                    stale.writer.cpu
                );
                self.report(line, Rule::NoBarrier, what);
            } else {
                self.report(line, rule, format!("{what} (VMID {vmid})"));
            }
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
