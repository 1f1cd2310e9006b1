//! What guests use.

use super::{Checker, UNEXPLAINED, Unexplained};
use crate::entries::{Kind, WRITE};
use crate::rules::Rule;
use crate::tables::Found;
use crate::vmids::allows;

impl Checker {
    pub(super) fn access(
        &mut self,
        line: u64,
        (vmid, gfn, frame, right): (u16, u64, u64, u8),
        begin: u64,
        end: u64,
    ) {
        let Some(root) = self.exposures.get(&vmid).and_then(|exposure| exposure.root) else {
            return;
        };
        if let Some(Found { kind: Kind::Leaf(leaf), level, gfn: first, .. }) =
            self.tables.walk(root, gfn)
            && allows(leaf, level, first, gfn, frame, right)
        {
            return;
        }
        let stale = self.stale.get(&vmid).into_iter().flatten();
        let recent = self.recent.iter().filter(|one| one.vmid == vmid && begin < one.end);
        let mut all = stale.chain(recent.map(|one| &one.stale));
        if all.any(|stale| stale.allows(gfn, frame, right)) || begin < self.horizon {
            return;
        }
        if self.unexplained.len() == UNEXPLAINED {
            self.unexplained.pop_front();
        }
        self.unexplained.push_back(Unexplained { line, end, root, gfn, frame, right });
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
