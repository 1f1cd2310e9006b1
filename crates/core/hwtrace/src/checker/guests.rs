//! CPUs that go into guests, and come out.

use std::collections::HashMap;

use super::{Checker, Inside, note_use};
use crate::event::{Event, Record, Scope};
use crate::lives::Tickets;
use crate::rules::Rule;
use crate::vmids::Exposure;
use crate::window::Key;

impl Checker {
    pub(super) fn enter(&mut self, line: u64, record: &Record, (tlb, top, vmid): (u32, u64, u16)) {
        let Record { begin, end, cpu, .. } = *record;
        let is_alone = self.is_alone((tlb, vmid), (begin, end));
        let known = self.root_lives.entry(top).or_default();
        known.entered = known.entered.max(end);
        self.check_ordered(line, cpu, (begin, end), "the guest");
        if !self.may_be_taken(vmid, (begin, end)) {
            let what = format!("root {top:#x} is entered under VMID {vmid}, which is nobody's");
            self.report(line, Rule::VmidNotTaken, what);
        }
        let is_it = |event: &Event| matches!(event, Event::Root { top: root, .. } if *root == top);
        if !self.tables.roots.contains_key(&top) && !self.hasten(end, |one| is_it(&one.event)) {
            self.note_stay((tlb, vmid), top, (begin, end));
            // It may have come before that.
            let was_there = self.root_lives.get(&top).is_some_and(|life| life.gone > begin);
            if was_there || !self.is_root_certain(top, (begin, end)) {
                self.doubt_exposure(vmid);
            } else {
                self.report(line, Rule::RootGone, format!("{top:#x} is entered, and is no root"));
            }
            return;
        }
        if let Some(root) = self.tables.roots.get_mut(&top) {
            root.is_entered = true;
        }
        if self.lingering.get(&vmid).is_some_and(|root| *root != Some(top)) {
            self.mixed.insert(vmid);
        }
        if let Some(exposure) = self.exposures.get(&vmid)
            && exposure.root != Some(top)
        {
            self.mixed.insert(vmid);
            if exposure.since.min(exposure.entered) >= begin {
                // It may have come before that, and what came of it is over. Or it is what holds from now on.
                self.doubt_exposure(vmid);
                self.note_stay((tlb, vmid), top, (begin, end));
                self.inside.remove(&(tlb, vmid));
                return;
            }
            let tops = [top, exposure.top];
            let is_certain = |top: u64| self.is_root_certain(top, (begin, end));
            let are_roots_certain = tops.into_iter().all(is_certain);
            if !self.may_be_forgotten(vmid, top, (begin, end)) && are_roots_certain {
                let what = format!(
                    "root {top:#x} is entered under VMID {vmid}, of which TLBs may have what was another's"
                );
                self.report(line, Rule::VmidReused, what);
            }
            self.exposures.remove(&vmid);
        }
        let may_be_out = self.note_stay((tlb, vmid), top, (begin, end));
        // Of another root, perhaps, that was in the frame before.
        let is_root_certain = self.is_root_certain(top, (begin, end));
        if !is_root_certain {
            self.mixed.insert(vmid);
        }
        let is_certain = is_alone && is_root_certain;
        let since = if is_certain { end } else { u64::MAX };
        if !may_be_out {
            self.inside.insert((tlb, vmid), Inside { root: top, since });
        }
        let issued = self.issued.values_mut().flatten().filter(|issued| begin > issued.end);
        for whole in issued.flat_map(|issued| &mut issued.whole).filter(|one| one.vmid == vmid) {
            whole.entered = whole.entered.min(since);
        }
        self.enters += 1;
        let exposure = self.exposures.entry(vmid).or_insert_with(|| Exposure {
            root: Some(top),
            top,
            since,
            entered: end,
            left: 0,
            out: 0,
            inside: HashMap::new(),
            enters: 0,
        });
        let is_first = is_certain && (exposure.enters == 0 || exposure.since == u64::MAX);
        exposure.since = exposure.since.min(since);
        exposure.enters = self.enters;
        exposure.entered = exposure.entered.max(end);
        if !may_be_out {
            exposure.inside.insert(tlb, since);
        }
        if is_first {
            self.expose_overdue(vmid, top, (begin, end));
        }
    }

    /// Of which root TLBs have something under `vmid`, and which CPUs are in its guest, is not known for certain.
    pub(super) fn doubt_exposure(&mut self, vmid: u16) {
        self.mixed.insert(vmid);
        if let Some(exposure) = self.exposures.get_mut(&vmid) {
            exposure.since = u64::MAX;
            exposure.inside.values_mut().for_each(|entered| *entered = u64::MAX);
        }
    }

    /// Whether a CPU may have entered the guest of the root at `top` before an event that ends at `before`.
    pub(super) fn may_be_entered(&self, top: u64, before: u64) -> bool {
        let is_it = |one: &Record| matches!(one.event, Event::Enter { top: of, .. } if of == top);
        self.tables.roots.get(&top).is_some_and(|root| root.is_entered)
            || self.window.find(before, is_it).is_some()
    }

    /// Notes that a CPU has entered the guest of `root` at `tickets`. Returns whether it may have left since.
    fn note_stay(&mut self, who: (u32, u16), root: u64, (begin, end): Tickets) -> bool {
        let stay = self.stays.entry(who).or_default();
        stay.root = root;
        stay.entered = stay.entered.max(end);
        stay.out > begin
    }

    pub(super) fn leave(&mut self, tlb: u32, vmid: u16, tickets: Tickets) {
        let (begin, _) = tickets;
        let is_alone = self.is_alone((tlb, vmid), tickets);
        let stay = self.stays.entry((tlb, vmid)).or_default();
        if stay.left.is_none_or(|(left, _)| left < begin) {
            stay.left = Some(tickets);
        }
        stay.out = stay.out.max(tickets.1);
        self.inside.remove(&(tlb, vmid));
        let Some(exposure) = self.exposures.get_mut(&vmid) else { return };
        exposure.out = exposure.out.max(tickets.1);
        let Some(entered) = exposure.inside.remove(&tlb) else { return };
        if !is_alone || entered == u64::MAX {
            return;
        }
        exposure.left = exposure.left.max(begin);
        let issued = self.issued.values_mut().flatten().filter(|issued| begin > issued.end);
        for whole in issued.flat_map(|issued| &mut issued.whole).filter(|one| one.vmid == vmid) {
            whole.stayed = whole.stayed.min(entered);
        }
        let needs = self.stale.get_mut(&vmid).into_iter().flatten();
        for need in needs.flat_map(|stale| &mut stale.needs) {
            note_use(need, entered, begin);
        }
    }

    /// Whether a CPU is in a guest that `is_it` says so of, by the VMID and the root, for certain when an event comes at
    /// `tickets`.
    pub(super) fn is_inside(
        &mut self,
        (begin, end): Tickets,
        is_it: impl Fn(u16, u64) -> bool,
    ) -> bool {
        loop {
            let mut inside = self.inside.iter().filter(|(_, one)| one.since < begin);
            // The CPU may have gone into another guest meanwhile.
            let goes_elsewhere = |who: &(u32, u16)| {
                let is_other = |one: &Record| matches!(one.event, Event::Enter { top, vmid, .. } if !is_it(vmid, top));
                self.window.of(Key::Stay(*who), end).any(is_other)
            };
            let found = inside.find(|(who, one)| is_it(who.1, one.root) && !goes_elsewhere(who));
            let Some((who, _)) = found else { return false };
            if !self.hasten_leave(*who, end) {
                return true;
            }
        }
    }

    /// Whether a CPU has left the guest for certain when it is said to use its TLB there.
    pub(super) fn is_outside(&mut self, tlb: u32, vmid: u16, (begin, end): Tickets) -> bool {
        loop {
            let Some(stay) = self.stays.get(&(tlb, vmid)) else { return false };
            let Some((left, _)) = stay.left.filter(|(_, left)| *left < begin) else { return false };
            if stay.entered > left {
                return false;
            }
            let is_it = |event: &Event| matches!(event, Event::Enter { tlb: by, vmid: of, .. } if (*by, *of) == (tlb, vmid));
            if !self.hasten(end, |one| is_it(&one.event)) {
                return true;
            }
        }
    }

    /// Has CPUs leave the guests that an invalidation covers, if that is written down later.
    pub(super) fn hasten_leaves(&mut self, vmid: Option<u16>, before: u64) {
        let covered = self.exposures.iter().filter(|(of, _)| vmid.is_none_or(|vmid| vmid == **of));
        let inside = covered.flat_map(|(of, one)| one.inside.keys().map(|tlb| (*tlb, *of)));
        let mut inside: Vec<(u32, u16)> = inside.collect();
        inside.sort_unstable();
        for who in inside {
            self.hasten_leave(who, before);
        }
    }

    /// Whether all TLBs may have forgotten all that they had under `vmid`, of another root than `top`, when an event
    /// comes at `tickets`.
    fn may_be_forgotten(&mut self, vmid: u16, top: u64, (begin, end): Tickets) -> bool {
        let covers =
            |of: Option<u16>, scope: Scope| scope == Scope::All && of.is_none_or(|of| of == vmid);
        self.hasten_leaves(Some(vmid), end);
        let issues = |event: &Event| match *event {
            Event::Tlbi { vmid, scope, .. } => covers(Some(vmid), scope),
            Event::TlbiEverything { .. } => true,
            _ => false,
        };
        while self.hasten(end, |one| issues(&one.event)) {}
        loop {
            let Some(exposure) = self.exposures.get(&vmid) else { return true };
            if exposure.root == Some(top) || exposure.since >= begin {
                return true;
            }
            // Whether it was idle is a question of tickets here.
            let after = self
                .log
                .iter()
                .filter(|one| covers(one.vmid, one.scope) && one.end > exposure.left);
            let after: Vec<_> = after.collect();
            let is_complete = |(first, _): (u64, u64)| first < end;
            if exposure.inside.values().all(|entered| *entered == u64::MAX)
                && after.iter().any(|one| one.complete.is_some_and(is_complete))
            {
                return true;
            }
            let number = self.window.find(self.limit(end), |one| match one.event {
                Event::Sync { id } => after.iter().any(|by| by.cpu == one.cpu && by.id <= id),
                _ => false,
            });
            if !number.is_some_and(|number| self.hasten_this(number)) {
                return false;
            }
        }
    }
}
