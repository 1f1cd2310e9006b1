//! A machine: what the VMs of a process share.

use std::io;
use std::ops::Deref;
use std::sync::Arc;

use mayfly_platform::cache::{CacheCapabilities, InstructionCaches};
use mayfly_platform::{Host, Mmu, Platform};
use mayfly_srcu::Pace;
use mayfly_stage2::{self as stage2, Ept, Format, Reclaimer, Slice, Vmids};
use mayfly_vm::{Caches, Config, Error, SlotZap, Vcpu, Vm};
use rustix::thread::Pid;

use crate::address_space::{self, Backing};
use crate::cache::{Lines, Oracle};
use crate::reclaim::ReclaimThread;
use crate::tlb::may_walk_late;
use crate::world::{MachineWorld, Telling, Told};
use crate::{
    Arena, Cpu, DataCache, Hardware, HostMemory, HostSpace, MachineWorker, Processors, Program,
};

/// A vCPU of the software machine.
pub type MachineVcpu<F = Ept> = Vcpu<MachineWorld<F>>;

/// Frames of a machine's memory: 128 GiB, which take room from the host where they are touched.
pub const FRAMES: usize = 1 << 25;

/// The part of a machine's memory that tables which await reclaim may take. Beyond it, a thread that leaves more such tables
/// helps to free them, so that other threads still get frames if the reclaimer runs too seldom.
const DEAD_PART: usize = 16;

/// If a VM has no more tables than this, the caller that destroys it frees them itself. That takes the caller about as long
/// as to wake the reclaimer's thread, which takes longer still to begin.
const AT_ONCE: usize = 128;

/// Processors whose caches need no maintenance, as on x86.
const COHERENT: CacheCapabilities =
    CacheCapabilities { instructions: InstructionCaches::Coherent, fgt: true };

/// How a VM of the machine differs from the usual one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VmOptions {
    /// How grace periods are paced.
    pub pace: Pace,
    /// What deleting a slot zaps.
    pub slot_zap: SlotZap,
    /// How long a piece of work on tables may be.
    pub slice: Slice,
    /// Whether the device that pages are swapped out to reads through the caches.
    pub coherent_swap: bool,
    /// Which part maintains caches for its guests.
    pub caches: Caches,
}

/// Physical memory, CPUs, a host address space; and the threads that do the deferred work of all VMs. Its CPUs
/// translate in format `F`.
///
/// Memory that backs a VM's slots may go at any time: the VM is told, and its guests fault.
pub struct Machine<F: Format = Ept> {
    hardware: Arc<Hardware>,
    space: Arc<HostSpace>,
    cache: Arc<DataCache>,
    worker: MachineWorker,
    vmids: Vmids,
    reclaim: ReclaimThread<F>,
}

impl Machine {
    /// A machine whose CPUs have Intel's EPT, without VMs, and its threads.
    ///
    /// # Errors
    ///
    /// As [`Machine::with_frames`].
    pub fn new() -> io::Result<Self> {
        Self::with_frames(FRAMES)
    }
}

impl<F: Format> Machine<F> {
    /// A machine with so many frames of memory, past whose caches no guest gets.
    ///
    /// # Errors
    ///
    /// Where the host has no thread to give, or too little address space.
    pub fn with_frames(frames: usize) -> io::Result<Self> {
        let worker = MachineWorker::spawn(Arc::new(Host::new()))?;
        Self::with_worker(frames, Processors::default(), worker)
    }

    /// A machine with so many frames, whose caches are maintained so, and whose processors take so much off the core's
    /// hands; and past whose caches guests get, unless the format is coherent.
    ///
    /// # Errors
    ///
    /// As [`Machine::with_frames`].
    pub fn with_caches(
        frames: usize,
        lines: Lines,
        capabilities: CacheCapabilities,
    ) -> io::Result<Self> {
        let arena = match lines {
            Lines::Modelled => {
                let oracle = Oracle::new(F::COHERENT).with_instructions(capabilities.instructions);
                Arena::new(frames)?.with_oracle(Arc::new(oracle))
            }
            Lines::Real | Lines::Counted => Arena::new(frames)?,
        };
        let worker = MachineWorker::spawn(Arc::new(Host::new()))?;
        Self::assemble(Arc::new(arena), lines, capabilities, Processors::default(), worker)
    }

    /// As [`Machine::with_processors`], with a worker that the caller has started, where it is to run.
    ///
    /// # Errors
    ///
    /// As [`Machine::with_processors`].
    pub fn with_worker(
        frames: usize,
        processors: Processors,
        worker: MachineWorker,
    ) -> io::Result<Self> {
        let arena = Arc::new(Arena::new(frames)?);
        Self::assemble(arena, Lines::Real, COHERENT, processors, worker)
    }

    /// As [`Machine::with_frames`], with such processors.
    ///
    /// # Errors
    ///
    /// As [`Machine::with_frames`]; where VMIDs have too few bits for so many CPUs, or not 1 to 16.
    pub fn with_processors(frames: usize, processors: Processors) -> io::Result<Self> {
        Self::with_worker(frames, processors, MachineWorker::spawn(Arc::new(Host::new()))?)
    }

    fn assemble(
        arena: Arc<Arena>,
        lines: Lines,
        capabilities: CacheCapabilities,
        processors: Processors,
        worker: MachineWorker,
    ) -> io::Result<Self> {
        let cache = Arc::new(DataCache::new(Arc::clone(&arena), lines, capabilities));
        let frames = arena.frames() as usize;
        let hardware = Arc::new(Hardware::with_processors(arena, processors));
        if may_walk_late::<F>() {
            hardware.walk_late();
        }
        let mmu: Arc<dyn Mmu> = hardware.clone();
        let bits = processors.vmid_bits;
        // SAFETY: the machine's only ones.
        let vmids = unsafe { Vmids::try_new(Arc::clone(&mmu), bits) }.map_err(io::Error::other)?;
        let bound = Reclaimer::<F>::BOUND.min(frames / DEAD_PART);
        let reclaimer = Arc::new(Reclaimer::new(mmu, bound).freeing_at_once(AT_ONCE));
        Ok(Self {
            space: Arc::new(HostSpace::new(Arc::clone(hardware.arena()))),
            cache,
            worker,
            reclaim: ReclaimThread::spawn(reclaimer)?,
            vmids,
            hardware,
        })
    }

    /// Where its VMs live.
    pub fn platform(&self) -> Arc<dyn Platform> {
        self.hardware.clone()
    }

    /// Its memory and CPUs.
    pub fn hardware(&self) -> &Arc<Hardware> {
        &self.hardware
    }

    /// The host's address space.
    pub fn space(&self) -> &Arc<HostSpace> {
        &self.space
    }

    /// Its caches.
    pub fn cache(&self) -> &Arc<DataCache> {
        &self.cache
    }

    /// Its VMIDs.
    pub fn vmids(&self) -> &Vmids {
        &self.vmids
    }

    /// The thread that runs what its VMs defer.
    pub fn worker(&self) -> &MachineWorker {
        &self.worker
    }

    /// What the kernel calls the thread that frees the tables of VMs that are gone: gettid(2).
    pub fn reclaimer_thread(&self) -> Pid {
        self.reclaim.thread()
    }

    /// Who frees the tables of VMs that are gone.
    pub fn reclaimer(&self) -> &Arc<Reclaimer<F>> {
        self.reclaim.reclaimer()
    }

    /// Maps `size` bytes, rounded up to whole pages; frames are given as they are touched.
    ///
    /// # Errors
    ///
    /// As [`HostSpace::mmap`].
    pub fn map(&self, size: u64) -> Result<HostMemory, address_space::Error> {
        self.map_backed(size, Backing::Pages)
    }

    /// As [`Machine::map`], with memory of a certain kind.
    ///
    /// # Errors
    ///
    /// As [`HostSpace::mmap`].
    pub fn map_backed(
        &self,
        size: u64,
        backing: Backing,
    ) -> Result<HostMemory, address_space::Error> {
        HostMemory::map(&self.space, size, backing)
    }

    /// A processor at the beginning of `program`.
    pub fn cpu(&self, program: Program) -> Cpu<F> {
        Cpu::new(&self.hardware, program)
    }

    /// A VM.
    ///
    /// # Errors
    ///
    /// As [`Vm::create`].
    pub fn create_vm(&self) -> Result<MachineVm<F>, Error> {
        self.create_vm_with(VmOptions::default())
    }

    /// A VM that differs from the usual one.
    ///
    /// # Errors
    ///
    /// As [`Vm::create`].
    pub fn create_vm_with(&self, options: VmOptions) -> Result<MachineVm<F>, Error> {
        let vm = Vm::create(self.config(&self.space, options))?;
        let telling = Telling::new(vm.clone(), options.coherent_swap);
        let told = Told::new(&self.space, telling);
        Ok(MachineVm { vm, _told: told })
    }

    /// An address space beside the machine's own, as another process has: a change in one is no business of a VM whose memory
    /// is in the other.
    pub fn another_space(&self) -> Arc<HostSpace> {
        Arc::new(HostSpace::new(Arc::clone(self.hardware.arena())))
    }

    /// What a VM of the machine is made of that has its memory in `space`, for a caller that [creates](Vm::create) it and
    /// registers by himself [who tells it](Telling) of what happens to that space.
    pub fn config(&self, space: &Arc<HostSpace>, options: VmOptions) -> Config<MachineWorld<F>> {
        let VmOptions { pace, slot_zap, slice, caches, .. } = options;
        let worker = Some(Arc::clone(self.worker.worker()));
        Config {
            srcu: mayfly_srcu::Config { pace, worker, ..Default::default() },
            stage2: stage2::Config {
                mmu: self.hardware.clone(),
                vmids: self.vmids.clone(),
                reclaimer: Arc::clone(self.reclaimer()),
                max_frames: usize::MAX,
            },
            memory: Arc::clone(space),
            cache: self.cache.clone(),
            caches,
            slot_zap,
            slice,
        }
    }
}

impl<F: Format> std::fmt::Debug for Machine<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine").field("format", &F::NAME).finish_non_exhaustive()
    }
}

/// A VM of the software machine, which is told what happens to the host's address space as long as this is there.
#[derive(Debug)]
pub struct MachineVm<F: Format = Ept> {
    vm: Vm<MachineWorld<F>>,
    _told: Told,
}

impl<F: Format> MachineVm<F> {
    /// Ends the VM: [`Vm::destroy`].
    pub fn destroy(self) {
        self.vm.clone().destroy();
    }
}

impl<F: Format> Deref for MachineVm<F> {
    type Target = Vm<MachineWorld<F>>;

    fn deref(&self) -> &Self::Target {
        &self.vm
    }
}
