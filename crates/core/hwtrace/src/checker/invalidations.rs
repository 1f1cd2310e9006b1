//! Invalidations: when they are issued, and complete; and what TLBs have under a VMID after those of all of it.

use super::{Checker, Issued, LOGGED, Logged, RECENT, Recent, Whole};
use crate::event::{Event, Record, Scope};
use crate::lives::Tickets;
use crate::vmids::{Stale, Stay};
use crate::window::Key;

impl Checker {
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
                let frames = stale.word.0..stale.word.0 + 1;
                if stale.is_live()
                    && (self.window.of(Key::Word(stale.word), end).next().is_some()
                        || self.window.frames_of(&frames, end).next().is_some())
                {
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
        // Also by the event that asked for this.
        let enters =
            |one: &Record| matches!(one.event, Event::Enter { vmid: of, .. } if of == vmid);
        let may_be_entered = self.window.of(Key::Entered(vmid), end).next().is_some()
            || self.taking.iter().any(enters);
        // One that went in when it was not known of which root may be there still.
        let is_inside = |(who, stay): (&(u32, u16), &Stay)| {
            who.1 == vmid && stay.left.is_none_or(|(left, _)| left < stay.entered)
        };
        if may_be_entered || exposure.out > begin || self.stays.iter().any(is_inside) {
            self.lingering.insert(vmid, exposure.root);
        } else {
            self.lingering.remove(&vmid);
            self.mixed.remove(&vmid);
        }
    }

    /// Whether all that TLBs have under `vmid` may be invalidated when an event comes at `tickets`, by what is written
    /// down later.
    pub(super) fn may_be_over(&self, vmid: u16, (begin, end): Tickets) -> bool {
        self.may_be_emptied(vmid, (0, end), begin)
    }

    /// The same of what TLBs had under `vmid` when an event came that began at `since`. It may be that they have something
    /// else since.
    pub(super) fn may_have_been_over(&self, vmid: u16, (since, end): Tickets) -> bool {
        self.may_be_emptied(vmid, (since, end), 0)
    }

    /// Whether an invalidation of all of `vmid` that is issued after `since` may be complete before `end`, by what is written
    /// down later, where no CPU was in the guest between, nor has gone in before `begin` for certain.
    fn may_be_emptied(&self, vmid: u16, (since, end): Tickets, begin: u64) -> bool {
        self.window.of(Key::Sync, end).any(|sync| {
            let Event::Sync { id: last } = sync.event else { return false };
            let issued = self.issued.get(&sync.cpu).into_iter().flatten();
            let mut issued = issued.filter(|one| one.id <= last && one.end > since);
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
                let comes_after = one.cpu == sync.cpu && one.end > since;
                is_it && comes_after && !self.is_any_inside(vmid, one.end, sync.begin)
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
}
