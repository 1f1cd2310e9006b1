//! The ring in which KVM logs what a vCPU writes.

use std::sync::Arc;

use mayfly_kvm::{DirtyRing, Vcpu, Vm};
use mayfly_lifecycle_steps::logged::PAGES;

/// Entries: the most that KVM allows.
pub(super) const ENTRIES: u32 = 1 << 16;

/// The ring of a vCPU, and the pages that were collected from it.
pub(super) struct Ring {
    vm: Arc<Vm>,
    mapped: DirtyRing,
    pages: Vec<u64>,
}

impl Ring {
    /// That of a vCPU.
    pub(super) fn map(vm: &Arc<Vm>, vcpu: &Vcpu) -> anyhow::Result<Self> {
        let pages = Vec::with_capacity(PAGES as usize);
        Ok(Self { vm: Arc::clone(vm), mapped: DirtyRing::map(vcpu, ENTRIES)?, pages })
    }

    /// Collects what is in it, and gives it back: as a harvest does, and when it is full.
    pub(super) fn empty(&mut self) -> anyhow::Result<()> {
        self.mapped.collect(|_, page| self.pages.push(page));
        Ok(self.vm.reset_dirty_rings()?)
    }

    /// How many different pages were collected since the last time.
    pub(super) fn named(&mut self) -> u32 {
        self.pages.sort_unstable();
        self.pages.dedup();
        let named = self.pages.len() as u32;
        self.pages.clear();
        named
    }
}
