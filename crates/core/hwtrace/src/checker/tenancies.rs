//! To whom VMIDs belong.

use super::Checker;
use crate::event::Event;
use crate::lives::Tickets;
use crate::rules::Rule;

/// Generations that are remembered.
const GENERATIONS: usize = 64;

impl Checker {
    pub(super) fn vmid_taken(&mut self, vmid: u16, generation: u64, tickets: Tickets) {
        let tenancy = self.tenancies.entry(vmid).or_default();
        tenancy.generation = tenancy.generation.max(generation);
        if tenancy.taken.is_none_or(|(_, end)| end < tickets.1) {
            tenancy.taken = Some(tickets);
        }
    }

    pub(super) fn vmid_kept(&mut self, vmid: u16, generation: u64) {
        let tenancy = self.tenancies.entry(vmid).or_default();
        tenancy.generation = tenancy.generation.max(generation);
    }

    pub(super) fn generation(&mut self, generation: u64, end: u64) {
        self.generations.push_back((generation, end));
        if self.generations.len() > GENERATIONS {
            self.generations.pop_front();
        }
    }

    pub(super) fn vmid_given(&mut self, line: u64, vmid: u16, tickets: Tickets) {
        let tenancy = self.tenancies.entry(vmid).or_default();
        if tenancy.given.is_none_or(|(_, end)| end < tickets.1) {
            tenancy.given = Some(tickets);
        }
        if self.is_inside(tickets, |of, _| of == vmid) {
            let what = format!("VMID {vmid} is given back, and a CPU is in the guest under it");
            self.report(line, Rule::VmidNotTaken, what);
        }
    }

    /// Whether a VMID may belong to some root when an event comes at `tickets`.
    pub(super) fn may_be_taken(&mut self, vmid: u16, (begin, end): Tickets) -> bool {
        while !self.may_be_held(vmid, begin) {
            let belongs = |event: &Event| match event {
                Event::VmidTake { vmid: of, .. } | Event::VmidKeep { vmid: of, .. } => *of == vmid,
                _ => false,
            };
            if !self.hasten(end, |one| belongs(&one.event)) {
                return false;
            }
        }
        true
    }

    fn may_be_held(&self, vmid: u16, begin: u64) -> bool {
        let Some(tenancy) = self.tenancies.get(&vmid) else { return false };
        let Some((_, taken)) = tenancy.taken else { return false };
        let is_given = tenancy.given.is_some_and(|(first, last)| taken < first && last < begin);
        let is_over =
            |(generation, end): &(u64, u64)| *generation > tenancy.generation && *end < begin;
        !is_given && !self.generations.iter().any(is_over)
    }
}
