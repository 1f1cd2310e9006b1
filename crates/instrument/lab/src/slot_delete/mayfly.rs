//! Mayfly's own VM.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, JoinHandle};

use anyhow::{Context, anyhow, bail, ensure};
use mayfly_machine::{Machine, MachineVcpu, MachineWorker, MachineWorld};
use mayfly_memslot::{Gpa, Region, SlotId};
use mayfly_platform::Mmu;
use mayfly_platform::address::PAGE_SHIFT;
use mayfly_stage2::{
    self as stage2, Ept, Leaf, Level, Mapped, Permissions, Reclaimer, Slice, Vmids,
};
use mayfly_vm::{Caches, Config, Exit, SlotZap, Vm};
use rustix::thread::{Pid, gettid};

use super::design::{Design, Left, Slot};
use super::guest::Guest;
use super::watch::{self, Log, Watch};
use crate::start::Start;
use crate::work::{ThreadRole, Threads};

const VMID_BITS: u32 = 16;

/// A VM whose platform is watched.
pub(crate) struct Mayfly {
    vm: Vm<MachineWorld<Ept>>,
    vcpus: AtomicU32,
    reclaimer: Arc<Reclaimer<Ept>>,
    /// Serves the reclaimer, and has its books.
    reclaim: JoinHandle<Log>,
    reclaim_thread: Pid,
    watch: Arc<Watch>,
    worker: MachineWorker,
}

impl Mayfly {
    pub(crate) fn new(
        machine: &Machine,
        watch: &Arc<Watch>,
        slot_zap: SlotZap,
    ) -> anyhow::Result<Self> {
        let mmu: Arc<dyn Mmu> = watch.clone();
        let worker = MachineWorker::spawn(watch.clone()).context("starting the worker")?;
        let reclaimer = Arc::new(Reclaimer::new(Arc::clone(&mmu), Reclaimer::<Ept>::BOUND));
        let served = Arc::clone(&reclaimer);
        let thread = Arc::new(OnceLock::new());
        let told = Arc::clone(&thread);
        let reclaim = Builder::new()
            .name("reclaimer".into())
            .spawn(move || {
                told.get_or_init(gettid);
                served.serve(Slice::default());
                watch::collect()
            })
            .context("starting the reclaimer")?;
        let vm = Vm::create(Config {
            srcu: mayfly_srcu::Config {
                worker: Some(Arc::clone(worker.worker())),
                ..Default::default()
            },
            stage2: stage2::Config {
                mmu: Arc::clone(&mmu),
                // SAFETY: the machine's own are not used: it has this VM alone.
                vmids: unsafe { Vmids::try_new(mmu, VMID_BITS) }?,
                reclaimer: Arc::clone(&reclaimer),
                max_frames: usize::MAX,
            },
            memory: Arc::clone(machine.space()),
            cache: machine.cache().clone(),
            caches: Caches::Coherent,
            slot_zap,
            slice: Slice::default(),
        })?;
        let (vcpus, watch) = (AtomicU32::new(0), Arc::clone(watch));
        let reclaim_thread = *thread.wait();
        Ok(Self { vm, vcpus, reclaimer, reclaim, reclaim_thread, watch, worker })
    }

    fn set(&self, slot: &Slot, size: u64) -> anyhow::Result<()> {
        let gpa = Gpa::new(slot.base.get() << PAGE_SHIFT);
        let region = slot.memory.region(SlotId::main(slot.id), gpa);
        Ok(self.vm.set_memory_region(&Region { size, ..region })?)
    }
}

impl Design for Mayfly {
    type Vcpu = MachineVcpu;

    fn create_vcpu(&self) -> anyhow::Result<MachineVcpu> {
        Ok(self.vm.create_vcpu(self.vcpus.fetch_add(1, Ordering::Relaxed))?)
    }

    fn run(&self, vcpu: &mut MachineVcpu, guest: &mut Guest) -> anyhow::Result<()> {
        loop {
            match vcpu.run(guest) {
                Exit::Mmio(_) => guest.skip(),
                Exit::Kicked if guest.park() => {}
                Exit::Kicked => return Ok(()),
                exit => bail!("the vCPU came out with {exit:?}"),
            }
        }
    }

    fn kick(&self, vcpu: u32) {
        self.vm.kick(vcpu);
    }

    fn create_slot(&self, slot: &Slot) -> anyhow::Result<()> {
        self.set(slot, slot.memory.size())
    }

    fn delete_slot(&self, slot: &Slot) -> anyhow::Result<()> {
        self.set(slot, 0)
    }

    fn populate(&self, slot: &Slot) -> anyhow::Result<()> {
        let host = self.vm.srcu().read_lock();
        let stage2 = self.vm.stage2();
        let seen = stage2.sample();
        for root in stage2.roots(&host) {
            for (gfns, pfn) in slot.runs()? {
                let leaf = Leaf::new(pfn, Permissions::all());
                // SAFETY: frames of the slot's memory, which stays as long as the slot does.
                let mapped = unsafe { root.map_run(gfns, Level::PAGE, &leaf, seen, &host) }?;
                ensure!(mapped == Mapped::Installed, "the memory was {mapped:?}");
            }
        }
        Ok(())
    }

    fn start(&self) -> Start {
        Start::of(&self.vm, self.watch.hardware().arena())
    }

    fn threads(&self) -> Threads {
        Threads::default().and_worker(&self.worker).and(ThreadRole::Reclaimer, self.reclaim_thread)
    }

    fn left(&self) -> Left {
        Left { awaited: self.reclaimer.frames() as u64, held: 0 }
    }

    fn destroy(self) -> anyhow::Result<Log> {
        self.watch.end();
        self.vm.clone().destroy();
        self.vm.wait_reclaimed();
        self.reclaimer.stop();
        self.reclaim.join().map_err(|_| anyhow!("the reclaimer's thread has panicked"))
    }
}
