//! What TLBs may have, and what they must not have any more.

use std::collections::HashMap;

use super::{Checker, Issued, LOGGED, Logged, RECENT, Recent, UNEXPLAINED, note_use};
use crate::event::{Record, Scope};
use crate::parse::ENTRIES;
use crate::rules::Rule;
use crate::tables::{Found, Word};
use crate::vmids::{Exposure, Need, Stale};

impl Checker {
    /// What was in an entry is not there any more, since an event that began at `begin`.
    pub(super) fn add_stale(&mut self, found: &Found, begin: u64) {
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
                self.forget_word(one.word);
                late.append(&mut one.needs);
            }
            self.add_stale_of(vmid, found, begin, (late, false));
        }
    }

    /// It should not be there any more.
    pub(super) fn add_live(&mut self, found: &Found, begin: u64, need: &Need) {
        for vmid in self.exposed(found.root) {
            self.add_stale_of(vmid, found, begin, (vec![need.clone()], true));
        }
    }

    /// VMIDs under which TLBs may have something of `root`.
    pub(super) fn exposed(&self, root: u64) -> Vec<u16> {
        let exposures = self.exposures.iter().filter(|(_, exposure)| exposure.root == Some(root));
        exposures.map(|(vmid, _)| *vmid).collect()
    }

    pub(super) fn add_stale_of(
        &mut self,
        vmid: u16,
        found: &Found,
        begin: u64,
        (needs, live): (Vec<Need>, bool),
    ) {
        let Found { word, level, gfn, bits, kind, .. } = *found;
        let is_exposed = self.exposures.get(&vmid).is_some_and(|exposure| exposure.since < begin);
        // It may have been invalidated by one that is remembered no more.
        let certain = is_exposed && begin >= self.forgotten.1;
        let by = Vec::new();
        let mut stale = Stale { word, level, gfn, bits, kind, begin, certain, live, by, needs };
        // Of a write that ended late, or waited for one before, they are in the log.
        let after = self.log.iter().rev().take_while(|logged| logged.end > begin);
        let reaching = |logged: &&Logged| {
            logged.vmid.is_none_or(|of| of == vmid) && stale.is_reached(logged.scope)
        };
        let reaching: Vec<&Logged> = after.filter(reaching).collect();
        let complete = reaching.iter().filter_map(|logged| logged.complete).min();
        stale.by = reaching.iter().map(|logged| (logged.cpu, logged.id)).collect();
        if let Some((sync, end)) = complete {
            let stale = self.judge(vmid, stale, sync);
            self.recent.push_back(Recent { vmid, stale, sync, end });
            return;
        }
        *self.stale_words.entry(word).or_default() += 1;
        self.stale.entry(vmid).or_default().push(stale);
    }

    pub(super) fn check_ordered(&mut self, line: u64, cpu: u32, before: &str) {
        if let Some((table, index)) = self.unordered.remove(&cpu) {
            let what = format!(
                "CPU {cpu} wrote entry {index} of table {table:#x}, and no barrier orders that before {before}"
            );
            self.report(line, Rule::NoBarrier, what);
        }
    }

    pub(super) fn enter(&mut self, line: u64, record: &Record, (tlb, top, vmid): (u32, u64, u16)) {
        let Record { begin, end, cpu, .. } = *record;
        self.check_ordered(line, cpu, "the guest");
        if !self.tables.roots.contains_key(&top) {
            self.report(line, Rule::RootGone, format!("{top:#x} is entered, and is no root"));
            return;
        }
        let taken_back = self.given_back.get(&vmid).is_some_and(|given| *given < begin);
        if taken_back && !self.held.contains_key(&vmid) {
            self.unheld.push_back((line, vmid, end));
            self.unheld.drain(..self.unheld.len().saturating_sub(UNEXPLAINED));
        }
        if let Some(exposure) = self.exposures.get(&vmid)
            && exposure.root != Some(top)
        {
            let what = format!(
                "root {top:#x} is entered under VMID {vmid}, of which TLBs may have what was another's"
            );
            self.report(line, Rule::VmidReused, what);
            self.exposures.remove(&vmid);
        }
        let exposure = self.exposures.entry(vmid).or_insert_with(|| Exposure {
            root: Some(top),
            since: end,
            inside: HashMap::new(),
            enters: 0,
        });
        self.enters += 1;
        exposure.enters = self.enters;
        exposure.inside.insert(tlb, end);
    }

    pub(super) fn leave(&mut self, tlb: u32, vmid: u16, begin: u64) {
        let Some(exposure) = self.exposures.get_mut(&vmid) else { return };
        let Some(entered) = exposure.inside.remove(&tlb) else { return };
        let needs = self.stale.get_mut(&vmid).into_iter().flatten();
        for need in needs.flat_map(|stale| &mut stale.needs) {
            note_use(need, entered, begin);
        }
    }

    pub(super) fn issue(&mut self, cpu: u32, id: u64, end: u64, vmid: Option<u16>, scope: Scope) {
        let lists: Vec<u16> = match vmid {
            Some(vmid) => vec![vmid],
            None => self.stale.keys().copied().collect(),
        };
        for vmid in lists {
            for stale in self.stale.get_mut(&vmid).into_iter().flatten() {
                if stale.begin < end && stale.is_reached(scope) {
                    stale.by.push((cpu, id));
                }
            }
        }
        let covered = |of: &u16| scope == Scope::All && vmid.is_none_or(|vmid| vmid == *of);
        let idle = self
            .exposures
            .iter()
            .filter(|(of, exposure)| covered(of) && exposure.inside.is_empty());
        let whole = idle.map(|(vmid, exposure)| (*vmid, exposure.enters)).collect();
        let number = self.forgotten.0 + self.log.len() as u64;
        self.issued.entry(cpu).or_default().push(Issued { id, number, whole, vmid });
        self.log.push_back(Logged { cpu, id, end, vmid, scope, complete: None });
        if self.log.len() > LOGGED
            && let Some(oldest) = self.log.pop_front()
        {
            self.forgotten = (self.forgotten.0 + 1, oldest.end);
        }
    }

    /// All that `cpu` has issued up to `id` is complete.
    pub(super) fn sync(&mut self, cpu: u32, id: u64, begin: u64, end: u64) {
        let Some(issued) = self.issued.get_mut(&cpu) else { return };
        let done: Vec<Issued> = issued.extract_if(.., |issued| issued.id <= id).collect();
        self.synced = self.synced.max(begin);
        for Issued { number, whole, vmid, .. } in done {
            let place = number.checked_sub(self.forgotten.0);
            if let Some(logged) = place.and_then(|place| self.log.get_mut(place as usize)) {
                logged.complete = Some((begin, end));
            }
            let lists: Vec<u16> = match vmid {
                Some(vmid) => vec![vmid],
                None => self.stale.keys().copied().collect(),
            };
            for vmid in lists {
                let Some(stale) = self.stale.get_mut(&vmid) else { continue };
                // Of a VMID that no CPU has entered since, nothing is left.
                let ends = |(of, enters): &(u16, u64)| {
                    *of == vmid && self.exposures.get(of).is_some_and(|one| one.enters == *enters)
                };
                let ended = whole.iter().any(ends);
                let is_done = |stale: &mut Stale| {
                    ended || stale.by.iter().any(|(by, number)| *by == cpu && *number <= id)
                };
                let resolved: Vec<Stale> = stale.extract_if(.., is_done).collect();
                if stale.is_empty() {
                    self.stale.remove(&vmid);
                }
                for mut stale in resolved {
                    for need in &mut stale.needs {
                        let inside = self.exposures.get(&vmid).into_iter();
                        for entered in inside.flat_map(|exposure| exposure.inside.values()) {
                            note_use(need, *entered, begin);
                        }
                    }
                    self.forget_word(stale.word);
                    let stale = self.judge(vmid, stale, begin);
                    self.recent.push_back(Recent { vmid, stale, sync: begin, end });
                }
            }
            for (vmid, enters) in whole {
                if self.exposures.get(&vmid).is_some_and(|exposure| exposure.enters == enters) {
                    self.exposures.remove(&vmid);
                }
            }
        }
        while self.recent.len() > RECENT {
            self.horizon = self.recent.pop_front().map_or(self.horizon, |recent| recent.end);
        }
    }

    pub(super) fn forget_word(&mut self, word: Word) {
        if let Some(count) = self.stale_words.get_mut(&word) {
            *count -= 1;
            if *count == 0 {
                self.stale_words.remove(&word);
            }
        }
    }

    /// Says what was broken of what is invalidated at `sync`, and not before. Gives it back.
    pub(super) fn judge(&mut self, vmid: u16, mut stale: Stale, sync: u64) -> Stale {
        if sync == u64::MAX {
            let exposure = self.exposures.get(&vmid).into_iter();
            let inside: Vec<u64> = exposure.flat_map(|one| one.inside.values().copied()).collect();
            for need in &mut stale.needs {
                for entered in &inside {
                    note_use(need, *entered, sync);
                }
            }
        }
        for need in std::mem::take(&mut stale.needs) {
            if stale.certain && need.is_broken(sync) {
                let Need { rule, line, what, .. } = need;
                self.report(line, rule, format!("{what} (VMID {vmid})"));
            }
        }
        stale
    }
}
