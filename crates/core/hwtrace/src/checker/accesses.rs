//! What guests use.

use super::{Checker, UNEXPLAINED, Unexplained};
use crate::entries::{Kind, PRESENT, WRITE};
use crate::lives::Tickets;
use crate::rules::Rule;
use crate::tables::{Found, Word};
use crate::vmids::allows;

impl Checker {
    pub(super) fn access(
        &mut self,
        line: u64,
        (tlb, vmid): (u32, u16),
        (gfn, frame, right): (u64, u64, u8),
        tickets: Tickets,
    ) {
        let (begin, end) = tickets;
        let is_outside = self.is_outside(tlb, vmid, tickets);
        if is_outside {
            let what = format!("TLB {tlb} is used under VMID {vmid}, whose guest its CPU has left");
            self.report(line, Rule::AccessOutside, what);
        }
        let frames = frame..frame + 1;
        self.check_given(line, &frames, tickets, "a guest uses it");
        if let Some(what) = self.table_for_certain(&frames, tickets, "is used by a guest") {
            self.report(line, Rule::TableMapped, what);
        }
        if is_outside || self.mixed.contains(&vmid) {
            return;
        }
        let exposure = self.exposures.get(&vmid).filter(|exposure| exposure.since < begin);
        let Some(root) = exposure.and_then(|exposure| exposure.root) else { return };
        while !self.is_explained(vmid, root, (gfn, frame, right), begin) {
            // What maps it may be written down later.
            let mut words = self.tables.walked(root, gfn);
            words.reverse();
            if self.hasten_write(&words, end, |_, _, new| new & PRESENT != 0) {
                continue;
            }
            if self.unexplained.len() == UNEXPLAINED {
                self.unexplained.pop_front();
            }
            if self.may_be_reused(vmid, root, end)
                || !self.is_walked_for_certain((tlb, vmid), root, &words, tickets)
            {
                return;
            }
            self.unexplained.push_back(Unexplained { line, end, root, gfn, frame, right });
            return;
        }
    }

    /// Whether the CPU that uses `tlb` walks from `root` through `words` at `tickets`, and finds there what is known.
    fn is_walked_for_certain(
        &self,
        who: (u32, u16),
        root: u64,
        words: &[Word],
        tickets: Tickets,
    ) -> bool {
        self.is_alone(who, tickets)
            && self.is_root_certain(root, tickets)
            && self.inside.get(&who).is_some_and(|one| one.root == root && one.since < tickets.0)
            && self.tables.are_in_place(root, words)
            && words.iter().all(|word| self.is_certain(*word, tickets, false))
    }

    /// Whether a TLB may have the translation by which a guest makes an access that began at `begin`.
    fn is_explained(
        &self,
        vmid: u16,
        root: u64,
        (gfn, frame, right): (u64, u64, u8),
        begin: u64,
    ) -> bool {
        if let Some(Found { kind: Kind::Leaf(leaf), level, gfn: first, .. }) =
            self.tables.walk(root, gfn)
            && allows(leaf, level, first, gfn, frame, right)
        {
            return true;
        }
        let stale = self.stale.get(&vmid).into_iter().flatten();
        let recent = self.recent.iter().filter(|one| one.vmid == vmid && begin < one.end);
        let mut all = stale.chain(recent.map(|one| &one.stale));
        all.any(|stale| stale.allows(gfn, frame, right)) || begin < self.horizon
    }

    /// Something was written by an event that began at `begin`, and that ends after some that came after it.
    pub(super) fn explain(&mut self, begin: u64) {
        if self.unexplained.is_empty() {
            return;
        }
        let Self { tables, unexplained, .. } = self;
        unexplained.retain(|one| {
            let Unexplained { end, root, gfn, frame, right, .. } = *one;
            let found = tables.walk(root, gfn).filter(|_| begin < end);
            let Some(Found { kind: Kind::Leaf(leaf), level, gfn: first, .. }) = found else {
                return true;
            };
            !allows(leaf, level, first, gfn, frame, right)
        });
    }

    pub(super) fn report_access(&mut self, access: &Unexplained) {
        let Unexplained { line, gfn, frame, right, .. } = *access;
        let how = if right == WRITE { "writes" } else { "reads" };
        let what = format!(
            "a guest {how} frame {frame:#x} at guest frame {gfn:#x}, which it had no more, or never"
        );
        self.report(line, Rule::StaleAccess, what);
    }
}
