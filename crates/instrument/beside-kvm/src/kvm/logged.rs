//! A VM whose dirty log is started, harvested and stopped, by each of KVM's ways.

use std::sync::Arc;

use anyhow::anyhow;
use mayfly_kvm::{GuestMemory, Kvm, MemoryFlags, Vm};
use mayfly_lifecycle_steps::course::Vcpu as _;
use mayfly_lifecycle_steps::guest::{MEMORY, MEMORY_BYTES, Order, REGION};
use mayfly_lifecycle_steps::large::Mapping;
use mayfly_lifecycle_steps::logged::{self, Log, PAGES, Share};
use mayfly_lifecycle_steps::times;

use super::arch::{Counter, Start, install};
use super::guest::Obedient;
use super::ring::ENTRIES;
use super::steps::memory;
use crate::way::Way;

/// The slot that is logged.
const SLOT: u32 = 1;

pub(super) fn logged(
    kvm: &Kvm,
    start: &Start,
    counter: &mut Counter,
    way: Way,
    mapping: Mapping,
) -> anyhow::Result<()> {
    let code = memory(MEMORY_BYTES, Mapping::Pages)?;
    let region = memory(times::BYTES, mapping)?;
    install(&code)?;
    let vm = Arc::new(Vm::create(kvm)?);
    ready(&vm, way)?;
    vm.create_irqchip()?;
    vm.set_memory_region(0, MEMORY, &code, MemoryFlags::default())?;
    vm.set_memory_region(SLOT, REGION, &region, MemoryFlags::default())?;
    let mut vcpu = match way {
        Way::Ring => Obedient::with_ring(&vm, 0, start)?,
        _ => Obedient::new(&vm, 0, start)?,
    };
    vm.finish_irqchip()?;
    vcpu.run()?;
    vcpu.obey(Order::Caches, 1)?;

    let words = vec![0; (PAGES / 64) as usize];
    let mut log = Harvests { vm: &vm, region: &region, way, words };
    logged::logged(mapping, &mut vcpu, counter, &mut log)?;

    vcpu.ring = None;
    let vm = Arc::into_inner(vm).ok_or_else(|| anyhow!("the VM is used still"))?;
    drop(vm.destroy(vec![vcpu.into_vcpu()]));
    Ok(())
}

/// Has a VM log by this way.
fn ready(vm: &Vm, way: Way) -> anyhow::Result<()> {
    match way {
        Way::EagerSplit => vm.split_eagerly(2 << 20)?,
        Way::InitiallySet => vm.protect_manually(true)?,
        Way::Ring => vm.log_in_rings(ENTRIES)?,
        _ => {}
    }
    Ok(())
}

/// The log, and what was taken out of it.
struct Harvests<'a> {
    vm: &'a Vm,
    region: &'a GuestMemory,
    way: Way,
    /// The bitmap, where there is one.
    words: Vec<u64>,
}

impl Harvests<'_> {
    fn set(&self, log_dirty: bool) -> anyhow::Result<()> {
        let flags = MemoryFlags { log_dirty, ..MemoryFlags::default() };
        Ok(self.vm.set_memory_region(SLOT, REGION, self.region, flags)?)
    }
}

impl Log<Obedient> for Harvests<'_> {
    type Error = anyhow::Error;

    fn start(&mut self) -> anyhow::Result<()> {
        self.set(true)
    }

    fn harvest(&mut self, vcpu: &mut Obedient) -> anyhow::Result<()> {
        if let Some(ring) = &mut vcpu.ring {
            return ring.empty();
        }
        self.vm.dirty_log(SLOT, &mut self.words)?;
        if self.way == Way::InitiallySet {
            self.vm.clear_dirty_log(SLOT, 0, &mut self.words)?;
        }
        Ok(())
    }

    fn named(&mut self, vcpu: &mut Obedient) -> u32 {
        match &mut vcpu.ring {
            Some(ring) => ring.named(),
            None => self.words.iter().map(|word| word.count_ones()).sum(),
        }
    }

    fn begins_full(&self) -> bool {
        self.way == Way::InitiallySet
    }

    fn stop(&mut self) -> anyhow::Result<()> {
        self.set(false)
    }

    fn has_lost(&self, share: Share, named: u32) -> anyhow::Error {
        anyhow!(
            "by {}, a harvest has named {named} pages, and {} were written",
            self.way.name(),
            share.pages()
        )
    }
}
