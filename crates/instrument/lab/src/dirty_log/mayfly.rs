//! Mayfly's own VM.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, bail, ensure};
use mayfly_machine::{Hardware, Machine, MachineVcpu, MachineWorker, MachineWorld};
use mayfly_memslot::{DirtyWord, Flags, Gpa, Hva, Region, SlotId};
use mayfly_platform::Mmu;
use mayfly_platform::address::Gfn;
use mayfly_stage2::{
    self as stage2, Ept, Leaf, Level, Mapped, Permissions, Reclaimer, Slice, Vmids,
};
use mayfly_vm::{Caches, Config, Exit, SlotZap, Vm};

use super::design::{Design, Dirty, Slot};
use super::guest::{Guest, OUT};
use super::waits::Waits;
use crate::start;

const VMID_BITS: u32 = 16;
const SLOT: SlotId = SlotId::main(0);

/// Words of the log that are taken together.
const LISTED: usize = 1024;

/// A VM whose platform tells what its threads wait for.
pub(super) struct Mayfly {
    vm: Vm<MachineWorld<Ept>>,
    hardware: Arc<Hardware>,
    slot: Arc<Slot>,
    vcpus: AtomicU32,
    /// Runs grace periods as long as the VM is there.
    _worker: MachineWorker,
}

impl Mayfly {
    pub(super) fn new(machine: &Machine, slot: Arc<Slot>) -> anyhow::Result<Self> {
        let mmu: Arc<dyn Mmu> = Arc::new(Waits(Arc::clone(machine.hardware())));
        let worker = MachineWorker::spawn(Arc::clone(&mmu) as _).context("starting the worker")?;
        let vm = Vm::create(Config {
            srcu: mayfly_srcu::Config {
                worker: Some(Arc::clone(worker.worker())),
                ..Default::default()
            },
            stage2: stage2::Config {
                mmu: Arc::clone(&mmu),
                // SAFETY: the machine's own are not used: it has this VM alone.
                vmids: unsafe { Vmids::try_new(Arc::clone(&mmu), VMID_BITS) }?,
                reclaimer: Arc::new(Reclaimer::new(mmu, Reclaimer::<Ept>::BOUND)),
                max_frames: usize::MAX,
            },
            memory: Arc::clone(machine.space()),
            cache: machine.cache().clone(),
            caches: Caches::Coherent,
            slot_zap: SlotZap::default(),
            slice: Slice::default(),
        })?;
        let hardware = Arc::clone(machine.hardware());
        let this = Self { vm, hardware, slot, vcpus: AtomicU32::new(0), _worker: worker };
        this.set(Flags::empty())?;
        this.populate()?;
        Ok(this)
    }

    fn set(&self, flags: Flags) -> anyhow::Result<Option<mayfly_memslot::Slot<Hva>>> {
        let region = self.slot.memory.region(SLOT, Gpa::new(0));
        Ok(self.vm.replace_memory_region(&Region { flags, ..region })?)
    }

    /// Maps all of the slot by blocks, as faults would.
    fn populate(&self) -> anyhow::Result<()> {
        let section = self.vm.srcu().read_lock();
        let stage2 = self.vm.stage2();
        let root = stage2.root(stage2::Role::MAIN, &section)?;
        let seen = stage2.sample();
        for block in self.slot.blocks() {
            let (gfn, pfn) = block?;
            let leaf = Leaf::new(pfn, Permissions::all());
            let gfns = gfn..Gfn::new(gfn.get() + Level::MIB2.pages());
            // SAFETY: frames of the slot's memory, which stays as long as the slot does.
            let mapped = unsafe { root.map_run(gfns, Level::MIB2, &leaf, seen, &section) }?;
            ensure!(mapped == Mapped::Installed, "the memory was {mapped:?}");
        }
        Ok(())
    }
}

impl Design for Mayfly {
    type Vcpu = MachineVcpu;

    const CLEARS: bool = false;

    fn create_vcpu(&self) -> anyhow::Result<MachineVcpu> {
        Ok(self.vm.create_vcpu(self.vcpus.fetch_add(1, Ordering::Relaxed))?)
    }

    fn run(&self, vcpu: &mut MachineVcpu, guest: &mut Guest) -> anyhow::Result<()> {
        loop {
            match vcpu.run(guest) {
                Exit::Custom(OUT) if !guest.rest() => return Ok(()),
                Exit::Custom(OUT) => {}
                exit => bail!("the vCPU came out with {exit:?}"),
            }
        }
    }

    fn start(&self) -> anyhow::Result<()> {
        self.set(Flags::LOG_DIRTY_PAGES)?;
        Ok(())
    }

    fn harvest(&self, dirty: &mut Dirty) -> anyhow::Result<()> {
        let (mut from, mut words) = (0, [DirtyWord::default(); LISTED]);
        loop {
            let count = self.vm.harvest_marked(SLOT, &mut from, &mut words)?;
            for DirtyWord { word, marks } in &words[..count] {
                dirty.list(u32::try_from(*word)?, *marks);
            }
            if count < LISTED {
                return Ok(());
            }
        }
    }

    fn stop(&self) -> anyhow::Result<()> {
        let before = self.set(Flags::empty())?.context("there was no log")?;
        let log = before.dirty().context("there was no log")?;
        self.vm.collapse_written(SLOT, log)?;
        Ok(())
    }

    fn mapped(&self) -> start::Mapped {
        let section = self.vm.srcu().read_lock();
        let tops = self.vm.stage2().roots(&section).map(|root| root.top());
        start::Mapped::of::<Ept>(self.hardware.arena(), tops)
    }

    fn destroy(self) -> anyhow::Result<()> {
        self.vm.clone().destroy();
        self.vm.wait_reclaimed();
        Ok(())
    }
}
