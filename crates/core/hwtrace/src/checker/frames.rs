//! Frames, roots and VMIDs that are given back.

use super::{Checker, describe};
use crate::entries::Kind;
use crate::parse::ENTRIES;
use crate::rules::Rule;
use crate::tables::{Found, Place, Root, pages};
use crate::vmids::Need;

impl Checker {
    pub(super) fn free(&mut self, line: u64, (frame, order): (u64, u32), begin: u64, end: u64) {
        let frames = frame..frame + (1 << order);
        let need = |rule, what| Need { rule, line, end, what, used: None };
        self.dirty.remove(frames.clone());
        for table in self.tables.known_in(&frames) {
            let Some(known) = self.tables.get(table) else { continue };
            if let Some(Place { root, level, gfn }) = known.place {
                // It hangs in its tree still. That is for a root that no CPU is on any more.
                let what =
                    format!("table {table:#x}, which guest frame {gfn:#x} is found by, is free");
                let need = need(Rule::TableFreed, what);
                let kind = Kind::Table(table);
                let level = level + 1;
                let word = (table, ENTRIES);
                let found = Found { word, root, level, gfn, bits: 0, kind };
                self.add_live(&found, begin, &need);
                self.tables.detach(table, &mut Vec::new());
            }
            self.lost(table);
            self.waiting.remove(&table);
            self.tables.forget(table);
            self.freed.insert(table, end);
        }
        // What was taken away, and TLBs may have still.
        for stale in self.stale.values_mut().flatten().filter(|stale| stale.begin < end) {
            let (rule, what) = match stale.kind {
                Kind::Table(table) if frames.contains(&table) && stale.word.1 != ENTRIES => (
                    Rule::TableFreed,
                    format!("table {table:#x} is free, and walk caches may have it"),
                ),
                Kind::Leaf(leaf)
                    if leaf.frame < frames.end
                        && leaf.frame + pages(stale.level) > frames.start =>
                {
                    let gfn = stale.gfn;
                    let what = format!(
                        "a frame from {frame:#x} on is free, and TLBs may have it at guest frame {gfn:#x}"
                    );
                    (Rule::FrameFreed, what)
                }
                _ => continue,
            };
            stale.needs.push(need(rule, what));
        }
        for found in self.tables.mapping(frame, order) {
            let what =
                format!("a frame from {frame:#x} on is free, and {} maps it", describe(&found));
            let need = need(Rule::FrameFreed, what);
            self.add_live(&found, begin, &need);
        }
    }

    pub(super) fn root_gone(&mut self, line: u64, top: u64, begin: u64) {
        let Some(Root { order, .. }) = self.tables.roots.remove(&top) else { return };
        for table in top..top + (1 << order) {
            self.tables.detach(table, &mut Vec::new());
        }
        for vmid in self.exposed(top) {
            let inside = self.exposures.get(&vmid).into_iter();
            if inside.flat_map(|one| one.inside.values()).any(|entered| *entered < begin) {
                let what =
                    format!("root {top:#x} is gone, and a CPU is in its guest under VMID {vmid}");
                self.report(line, Rule::RootGone, what);
            }
            if let Some(exposure) = self.exposures.get_mut(&vmid) {
                exposure.root = None;
            }
        }
    }

    pub(super) fn vmid_given(&mut self, line: u64, vmid: u16, begin: u64, end: u64) {
        if self.held.get(&vmid).is_some_and(|(_, taken)| *taken > begin) {
            // It was given back before it was taken again.
            return;
        }
        self.held.remove(&vmid);
        self.given_back.insert(vmid, end);
        let inside = self.exposures.get(&vmid).into_iter();
        if inside.flat_map(|exposure| exposure.inside.values()).any(|entered| *entered < begin) {
            let what = format!("VMID {vmid} is given back, and a CPU is in the guest under it");
            self.report(line, Rule::VmidNotTaken, what);
        }
    }
}
