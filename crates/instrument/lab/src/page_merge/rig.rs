//! A machine with VMs whose notifiers are one variant's.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use anyhow::Context;
use mayfly_machine::address_space::{Notifier, NotifierId};
use mayfly_machine::merger::{Merger, Run, Tunables};
use mayfly_machine::{HostMemory, Machine, MachineWorker, MachineWorld, Rigour, Telling};
use mayfly_memslot::{Gpa, Hva, PAGE_SIZE, SlotId};
use mayfly_platform::{Host, Mmu};
use mayfly_stage2::{self as stage2, Format, Slice, Vmids};
use mayfly_vm::{Caches, Config, SlotZap, Vm};

use super::names::{BATCHED, CHANGE_PTE, INVALIDATE};
use super::pattern::pages_of;
use super::shape::Shape;
use super::watched::{Books, Watched, cost_of_clock};
use super::window::Windows;
use crate::before::notifiers::{ChangePte, Invalidate, Memory};
use crate::experiment::Variant;
use crate::work::{ThreadRole, Threads};

const VMID_BITS: u32 = 16;

/// The merger's settings: it scans more at a time than Linux's does by default, and does not rest.
const TUNABLES: Tunables = Tunables {
    run: Run::Stop,
    pages_to_scan: 1024,
    sleep_millisecs: 0,
    use_zero_pages: true,
    max_page_sharing: 256,
    pages_to_merge: 1,
};

/// Frames of the machine: twice the memory, for a time in which nothing is merged and one VM is forked; and tables.
pub(super) fn frames(shape: Shape) -> usize {
    (2 * pages_of(shape.memory) * shape.vms as usize).next_power_of_two().max(1 << 18)
}

/// The machine, its VMs and its merger.
pub(super) struct Rig<F: Format> {
    pub(super) vms: Vec<Subject<F>>,
    pub(super) merger: Merger,
    /// Nanoseconds that a look at a thread's clock takes.
    pub(super) clock: u64,
    worker: MachineWorker,
    pub(super) machine: Machine<F>,
}

/// A VM, and who watches what it is told.
pub(super) struct Subject<F: Format> {
    pub(super) vm: Vm<MachineWorld<F>>,
    pub(super) memory: HostMemory,
    pub(super) windows: Arc<Windows>,
    pub(super) watched: Arc<Watched<F>>,
    id: NotifierId,
}

impl<F: Format> Rig<F> {
    pub(super) fn new(variant: &str, shape: Shape) -> anyhow::Result<Self> {
        let machine = Machine::with_frames(frames(shape)).context("starting the machine")?;
        machine.hardware().set_rigour(Rigour::empty());
        // A guest that reads a frame which a merge has freed finds it out.
        machine.hardware().arena().poison_freed();
        let worker = MachineWorker::spawn(Arc::new(Host::new())).context("starting the worker")?;
        let mmu: Arc<dyn Mmu> = machine.hardware().clone();
        // SAFETY: the machine's own are not used: every VM of the rig is made with these.
        let vmids = unsafe { Vmids::try_new(Arc::clone(&mmu), VMID_BITS) }?;
        let merger = Merger::new(Arc::clone(machine.space()));
        merger.set(Tunables { pages_to_merge: shape.pages_a_change.into(), ..TUNABLES })?;
        let clock = cost_of_clock();
        let mut rig = Self { vms: Vec::new(), merger, clock, worker, machine };
        for _ in 0..shape.vms {
            let vm = Vm::create(Config {
                srcu: mayfly_srcu::Config {
                    worker: Some(Arc::clone(rig.worker.worker())),
                    ..Default::default()
                },
                stage2: stage2::Config {
                    mmu: Arc::clone(&mmu),
                    vmids: vmids.clone(),
                    reclaimer: Arc::clone(rig.machine.reclaimer()),
                    max_frames: usize::MAX,
                },
                memory: Arc::clone(rig.machine.space()),
                cache: rig.machine.cache().clone(),
                caches: Caches::Coherent,
                slot_zap: SlotZap::Range,
                slice: Slice::default(),
            })?;
            rig.add(vm, variant, shape)?;
        }
        Ok(rig)
    }

    fn add(&mut self, vm: Vm<MachineWorld<F>>, variant: &str, shape: Shape) -> anyhow::Result<()> {
        let memory = self.machine.map(shape.memory.bytes()).context("mapping memory")?;
        let hvas = memory.hvas();
        vm.set_memory_region(&memory.region(SlotId::main(0), Gpa::new(0)))?;
        let told = Memory::new(vm.clone(), hvas.clone());
        let inner: Box<dyn Notifier> = match variant {
            INVALIDATE => Box::new(Invalidate(told)),
            CHANGE_PTE => Box::new(ChangePte(told)),
            #[cfg(test)]
            super::deaf::DEAF => Box::new(super::deaf::Deaf(Telling::new(vm.clone(), true))),
            _ => {
                debug_assert!([Variant::BASELINE, BATCHED].contains(&variant));
                Box::new(Telling::new(vm.clone(), true))
            }
        };
        let windows = Arc::new(Windows::new(pages_of(shape.memory)));
        let watched = Arc::new(Watched {
            inner,
            vm: vm.clone(),
            memory: hvas.clone(),
            windows: Arc::clone(&windows),
            arena: Arc::clone(self.machine.hardware().arena()),
            clock: self.clock,
            books: Mutex::new(Books::default()),
        });
        let id = self.machine.space().register(watched.clone());
        self.merger.register(hvas).context("registering memory")?;
        self.vms.push(Subject { vm, memory, windows, watched, id });
        Ok(())
    }

    /// Its threads that are no vCPU's.
    pub(super) fn threads(&self) -> Threads {
        Threads::default()
            .and_worker(&self.worker)
            .and(ThreadRole::Reclaimer, self.machine.reclaimer_thread())
    }

    /// Ends the VMs, whose vCPUs are gone, and the machine. Returns how many frames are left over.
    pub(super) fn end(self) -> u64 {
        let Self { vms, merger, machine, worker, .. } = self;
        for Subject { vm, memory, watched, id, .. } in vms {
            machine.space().unregister(id);
            drop(watched);
            vm.clone().destroy();
            vm.wait_reclaimed();
            drop(memory);
        }
        drop((merger, worker));
        let arena = Arc::clone(machine.hardware().arena());
        drop(machine);
        arena.in_use()
    }
}

impl<F: Format> Subject<F> {
    /// Addresses of `pages` of its memory.
    pub(super) fn hvas(&self, pages: Range<usize>) -> Range<Hva> {
        self.hva(pages.start)..self.hva(pages.end)
    }

    /// The address of page `page` of its memory.
    pub(super) fn hva(&self, page: usize) -> Hva {
        Hva::new(self.memory.hva().get() + page as u64 * PAGE_SIZE)
    }
}
