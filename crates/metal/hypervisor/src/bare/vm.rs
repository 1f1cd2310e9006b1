//! VMs: what they are made of, and how a life of one goes.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ptr::with_exposed_provenance;
use core::slice;
use core::sync::atomic::Ordering;
use core::time::Duration;

use mayfly_arm64::cpu;
use mayfly_arm64::guest::Confinement;
use mayfly_arm64::spin::SpinLock;
use mayfly_hypervisor::contents::Contents;
use mayfly_hypervisor::image::NoKernel;
use mayfly_hypervisor::layout::{self, Guest, Placement};
use mayfly_hypervisor::plan::Plan;
use mayfly_hypervisor::tree::Region as Span;
use mayfly_vgic::affinity;
use mayfly_vm::iobus::IoRange;
use mayfly_vm::memslot::{Flags, Gpa, Hva, Region, SlotId};
use mayfly_vm::platform::Platform;
use mayfly_vm::platform::memory::OutOfMemory;
use mayfly_vm::srcu::Worker;
use mayfly_vm::stage2::{Arm, Reclaimer, Slice, Vmids};
use mayfly_vm::{Bus, Caches, Config, Device, SlotZap, Vm, stage2};

use super::console::say;
use super::disk::Frames;
use super::life::{Books, End, Life};
use super::memory::GuestMemory;
use super::uart::Uart;
use super::world::{self, World};
use super::{entropy, measure, threads, vcpu};

/// Bits of a guest's physical addresses.
pub(super) const IPA_BITS: u32 = 40;
/// `ID_AA64MMFR0_EL1.PARange` of as many.
const PA_RANGE: u64 = 2;

/// What the core does before it looks for interrupts, which is to be 20,000 instructions at most.
const SLICE: Slice = Slice { entries: 32, time: Duration::from_micros(50) };
/// Of the entries of tables that are freed: each may be a table, whose frame is given back.
const FREED: Slice = Slice { entries: 16, ..SLICE };

/// Bytes of the seed that a guest's kernel finds.
const SEED: usize = 64;

/// What VMs are made of: Arm's stage 2, with forced write-back where the processors have it.
pub(super) struct Kinds<const FWB: bool>;

impl<const FWB: bool> mayfly_vm::World for Kinds<FWB> {
    type Device = Arc<dyn Device>;
    type Backing = Hva;
    type Format = Arm<IPA_BITS, FWB>;
    type Memory = GuestMemory;
}

/// A VM that may live.
pub(super) struct Machine {
    pub(super) plan: Plan,
    pub(super) uart: Arc<Uart>,
    pub(super) books: Arc<Books>,
    /// What its disk keeps from one life to the next, once it has lived.
    disk: SpinLock<Option<Arc<GuestMemory>>>,
    present: SpinLock<Present>,
}

/// What a VM is at.
enum Present {
    /// It was never started, or has ended.
    Rests,
    /// It is about to live, and is to end at once if that is asked.
    Begins(Option<End>),
    Lives(Arc<Life>, Arc<GuestMemory>),
}

impl Machine {
    pub(super) fn new(plan: Plan) -> Self {
        let uart = Arc::new(Uart::new(&plan.name));
        let (disk, present) = (SpinLock::new(None), SpinLock::new(Present::Rests));
        Self { plan, uart, books: Arc::default(), disk, present }
    }

    /// Its disk, if it is to have one.
    fn disk(&self, world: &Arc<World>) -> Result<Option<Frames>, OutOfMemory> {
        let Plan { name, disk: bytes, .. } = &self.plan;
        if *bytes == 0 {
            return Ok(None);
        }
        let kept = self.disk.lock().clone();
        let memory = match kept {
            Some(memory) => memory,
            // Nobody else makes one: a VM has one life at a time.
            None => Arc::new(GuestMemory::try_new(Arc::clone(world), *bytes)?),
        };
        *self.disk.lock() = Some(Arc::clone(&memory));
        Ok(Some(Frames::new(name, *bytes, memory)))
    }

    /// Frames that its disk has.
    pub(super) fn disk_frames(&self) -> u64 {
        self.disk.lock().as_ref().map_or(0, |disk| disk.frames())
    }

    /// Says that it is about to live; not if it does.
    pub(super) fn begin(&self) -> bool {
        let mut present = self.present.lock();
        let rests = matches!(*present, Present::Rests);
        if rests {
            *present = Present::Begins(None);
            // Now, for who waits for what it says waits from now on.
            self.uart.begin();
        }
        rests
    }

    /// Ends it, if it lives.
    pub(super) fn end(&self, end: End) {
        let life = match &mut *self.present.lock() {
            Present::Rests => return,
            Present::Begins(asked) => {
                *asked = Some(end);
                return;
            }
            Present::Lives(life, _) => Arc::clone(life),
        };
        life.end(end);
    }

    /// A life begins.
    fn born(&self, life: &Arc<Life>, memory: &Arc<GuestMemory>) {
        let lives = Present::Lives(Arc::clone(life), Arc::clone(memory));
        let before = core::mem::replace(&mut *self.present.lock(), lives);
        if let Present::Begins(Some(end)) = before {
            life.end(end);
        }
    }

    /// A life is over; there may be another.
    fn dead(&self) {
        let before = core::mem::replace(&mut *self.present.lock(), Present::Begins(None));
        drop(before);
    }

    /// It rests.
    pub(super) fn over(&self) {
        *self.present.lock() = Present::Rests;
    }

    /// Whether it lives, or is about to, or something of it is still to be given back.
    pub(super) fn is_living(&self) -> bool {
        !matches!(*self.present.lock(), Present::Rests)
    }

    /// What it is at.
    pub(super) fn state(&self) -> &'static str {
        match *self.present.lock() {
            Present::Rests => "rests",
            Present::Begins(_) => "begins",
            Present::Lives(..) => "lives",
        }
    }

    /// Frames that it was given.
    pub(super) fn frames(&self) -> u64 {
        match &*self.present.lock() {
            Present::Lives(_, memory) => memory.frames(),
            _ => 0,
        }
    }
}

/// What all VMs share, of a format that is chosen when the program starts.
pub(super) trait Host: Send + Sync {
    /// Has a VM live, until its end, and all that it had is given back.
    fn live(&self, machine: &Machine) -> Result<End, &'static str>;

    /// Has lives be counted for so many rounds.
    fn measure(&self, rounds: u32);
}

/// The same, of one format.
pub(super) struct HostOf<const FWB: bool> {
    pub(super) world: Arc<World>,
    vmids: Vmids,
    reclaimer: Arc<Reclaimer<Arm<IPA_BITS, FWB>>>,
    worker: Arc<Worker>,
}

/// Makes what VMs share, and the threads that work for all of them.
pub(super) fn host() -> Result<Arc<dyn Host>, OutOfMemory> {
    if cpu::stage2_features().has_fwb() {
        HostOf::<true>::start()
    } else {
        HostOf::<false>::start()
    }
}

impl<const FWB: bool> HostOf<FWB> {
    fn start() -> Result<Arc<dyn Host>, OutOfMemory> {
        let world = World::new();
        let bits = cpu::stage2_features().vmid_bits();
        let vmids = Vmids::try_new(world.clone(), bits).map_err(|_| OutOfMemory)?;
        let bound = Reclaimer::<Arm<IPA_BITS, FWB>>::BOUND;
        let reclaimer = Arc::new(Reclaimer::new(world.clone(), bound).with_slice(FREED));
        let worker = Arc::new(Worker::new(world.clone()));
        let (works, reclaims) = (Arc::clone(&worker), Arc::clone(&reclaimer));
        threads::spawn(move || works.run())?;
        threads::spawn(move || reclaims.serve(FREED))?;
        Ok(Arc::new(Self { world, vmids, reclaimer, worker }))
    }

    /// What guests of this format are confined by.
    pub(super) fn confinement() -> Confinement {
        Confinement {
            empty: world::empty_root(),
            hcr: Arm::<IPA_BITS, FWB>::HCR,
            pa_range: PA_RANGE,
        }
    }

    pub(super) fn config(&self, memory: &Arc<GuestMemory>) -> Config<Kinds<FWB>> {
        Config {
            srcu: mayfly_vm::srcu::Config {
                worker: Some(Arc::clone(&self.worker)),
                ..Default::default()
            },
            stage2: stage2::Config {
                mmu: self.world.clone(),
                vmids: self.vmids.clone(),
                reclaimer: self.reclaimer.clone(),
                max_frames: usize::MAX,
            },
            memory: Arc::clone(memory),
            cache: self.world.clone(),
            caches: Caches::Tracked,
            slot_zap: SlotZap::Range,
            slice: SLICE,
        }
    }

    fn make(
        &self,
        machine: &Machine,
        life: &Life,
        memory: &Arc<GuestMemory>,
    ) -> Result<Vm<Kinds<FWB>>, &'static str> {
        let vm = Vm::create(self.config(memory)).map_err(|_| "there is no memory for a VM")?;
        let region = Region {
            slot: SlotId::main(0),
            flags: Flags::empty(),
            gpa: Gpa::new(layout::MEMORY),
            size: machine.plan.memory,
            backing: Hva::new(0),
        };
        vm.set_memory_region(&region).map_err(|_| "its memory cannot be set")?;
        let range = IoRange { start: layout::UART, len: layout::UART_BYTES };
        let uart: Arc<dyn Device> = machine.uart.clone();
        vm.register_device(Bus::Mmio, range, uart)
            .map_err(|_| "its console cannot be registered")?;
        for (range, device) in life.devices.all() {
            vm.register_device(Bus::Mmio, range, device)
                .map_err(|_| "its devices cannot be registered")?;
        }
        Ok(vm)
    }
}

/// The bytes of a module.
fn module(region: &Span) -> &'static [u8] {
    let start = with_exposed_provenance((region.start) as usize);
    // SAFETY: the device tree says that it was loaded there; its memory is kept, mapped, and written by nobody.
    unsafe { slice::from_raw_parts(start, (region.end - region.start) as usize) }
}

/// Loads what the guest begins with; says where, and what it finds in x0.
fn load(machine: &Machine, memory: &GuestMemory) -> Result<(u64, u64), &'static str> {
    let plan = &machine.plan;
    let no_kernel = |error: NoKernel| {
        say!("mayfly: {}: {error}", plan.name);
        "it has no kernel"
    };
    let (kernel, mut contents) = Contents::open(module(&plan.kernel)).map_err(no_kernel)?;
    let sizes: Vec<u64> = plan.ramdisks.iter().map(|ramdisk| ramdisk.end - ramdisk.start).collect();
    let placement = Placement::new(kernel, &sizes, plan.memory)
        .ok_or("it has too little memory for what is loaded")?;
    let write = |at: u64, bytes: &[u8]| {
        memory
            .write(at - layout::MEMORY, bytes)
            .map_err(|_| "there is too little memory for what is loaded")
    };
    let mut at = placement.kernel;
    while let Some(piece) = contents.next_piece().map_err(no_kernel)? {
        write(at, piece)?;
        at += piece.len() as u64;
        threads::preemption_point();
    }
    for (place, ramdisk) in placement.ramdisks.iter().zip(&plan.ramdisks) {
        write(place.start, module(ramdisk))?;
    }
    let ramdisks = placement.ramdisks.first().zip(placement.ramdisks.last());
    let seed = entropy::seed::<SEED>().to_vec();
    threads::preemption_point();
    let tree = Guest {
        affinities: (0..plan.vcpus as usize).map(affinity).collect(),
        memory: plan.memory,
        arguments: &plan.arguments,
        ramdisks: ramdisks.map(|(first, last)| first.start..last.end),
        has_disk: plan.disk != 0,
        seed,
    };
    write(placement.tree, &tree.tree(threads::preemption_point))?;
    Ok((placement.kernel, placement.tree))
}

impl<const FWB: bool> Host for HostOf<FWB> {
    fn measure(&self, rounds: u32) {
        measure::run(self, rounds);
    }

    fn live(&self, machine: &Machine) -> Result<End, &'static str> {
        let no_memory = |_: OutOfMemory| "there is no memory for a VM";
        let memory =
            GuestMemory::try_new(self.world.clone(), machine.plan.memory).map_err(no_memory)?;
        let memory = Arc::new(memory);
        let (entry, tree) = load(machine, &memory)?;
        let life = Life::try_new(
            self.world.clone(),
            &machine.plan,
            &machine.uart,
            &machine.books,
            machine.disk(&self.world).map_err(no_memory)?,
            Self::confinement(),
        );
        let life = Arc::new(life.map_err(no_memory)?);
        threads::preemption_point();
        let vm = self.make(machine, &life, &memory)?;
        threads::preemption_point();
        machine.uart.reset(Some(Arc::clone(&life.vgic)));
        machine.born(&life, &memory);
        life.alive.fetch_add(1, Ordering::Relaxed);
        let (its, its_memory) = (Arc::clone(&life), Arc::clone(&memory));
        let work = move || {
            its.devices.serve(&its, &its_memory);
            // Before the life is over, when all that it had is to be back.
            drop(its_memory);
            its.gone();
        };
        if threads::spawn(work).is_err() {
            life.gone();
            life.end(End::Failed);
        }
        for number in 0..machine.plan.vcpus {
            life.alive.fetch_add(1, Ordering::Relaxed);
            let begun = vm.create_vcpu(number).ok().and_then(|vcpu| {
                let its = Arc::clone(&life);
                let work = move || {
                    vcpu::main(&its, vcpu);
                    its.gone();
                };
                threads::spawn(work).ok()
            });
            if begun.is_none() {
                life.gone();
                life.end(End::Failed);
            }
            threads::preemption_point();
        }
        life.turn_on(0, entry, tree);
        loop {
            let alive = life.alive.load(Ordering::Acquire);
            if alive == 0 {
                break;
            }
            self.world.wait(&life.alive, alive);
        }
        machine.uart.reset(None);
        machine.dead();
        threads::preemption_point();
        let ended = vm.clone();
        vm.destroy();
        threads::preemption_point();
        ended.wait_reclaimed();
        Ok(life.ending().unwrap_or(End::Failed))
    }
}
