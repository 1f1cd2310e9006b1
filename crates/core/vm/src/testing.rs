//! A ready world for tests and examples: a Linux process as the machine, memory of its own as the host's, and a guest
//! that is a list of steps.
//!
//! The machine is [`Process`]: what hardware may do beyond it is not tried.

use alloc::sync::Arc;
use alloc::vec::Vec;
use std::sync::{Mutex, MutexGuard};

use mayfly_memslot::{Gfn, Gpa, Hva, PAGE_SHIFT, PAGE_SIZE};
use mayfly_platform::address::Pfn;
use mayfly_platform::frames::Frames;
use mayfly_platform::memory::OutOfMemory;
use mayfly_platform::sync::{AtomicU64, Ordering};
use mayfly_platform::tlb::Tlb;
use mayfly_stage2::testing::walk;
use mayfly_stage2::{Ept, Format, Level, Permissions, Reclaimed, Reclaimer, Slice, Vmids};

pub use mayfly_platform::testing::Process;

use crate::{
    Access, Caches, Config, Device, Event, Guest, HostFault, HostMemory, Requests, Resolved,
    SlotZap, Translation, World,
};

/// The kinds of its VMs.
#[derive(Clone, Copy, Debug)]
pub struct Kinds;

impl World for Kinds {
    type Device = Arc<dyn Device>;
    type Backing = Hva;
    type Format = Ept;
    type Memory = Memory;
}

/// What the VMs of a test share: the machine, its VMIDs, the host's memory, and the reclaimer of their tables.
#[derive(Debug)]
pub struct Machine {
    process: Arc<Process>,
    memory: Arc<Memory>,
    vmids: Vmids,
    reclaimer: Arc<Reclaimer<Ept>>,
}

impl Machine {
    /// With so many frames, for tables and for the memory of guests.
    ///
    /// # Panics
    ///
    /// If there is not so much memory in a process.
    pub fn new(frames: usize) -> Self {
        let process = Arc::new(Process::new(frames));
        // SAFETY: the only ones of this process's machine, which keeps no translations.
        let vmids = unsafe { Vmids::try_new(process.clone(), 8) }.expect("there is memory");
        let reclaimer = Arc::new(Reclaimer::new(process.clone(), Reclaimer::<Ept>::BOUND));
        let memory = Arc::new(Memory { process: process.clone(), given: Mutex::default() });
        Self { process, memory, vmids, reclaimer }
    }

    /// How a VM is built on it.
    pub fn config(&self) -> Config<Kinds> {
        Config {
            srcu: mayfly_srcu::Config::default(),
            stage2: mayfly_stage2::Config {
                mmu: self.process.clone(),
                vmids: self.vmids.clone(),
                reclaimer: self.reclaimer.clone(),
                max_frames: usize::MAX,
            },
            memory: self.memory.clone(),
            cache: self.process.clone(),
            caches: Caches::Coherent,
            slot_zap: SlotZap::default(),
            slice: Slice::default(),
        }
    }

    /// The process.
    pub fn process(&self) -> &Arc<Process> {
        &self.process
    }

    /// The host's memory.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// A guest that makes `steps`, one after the other, and halts. It panics if a vCPU of another machine runs it.
    pub fn guest(&self, steps: impl Into<Vec<Step>>) -> Program {
        let process = self.process.clone();
        Program { process, steps: steps.into(), next: 0, loaded: Vec::new(), pending: None }
    }

    /// Frees tables of VMs that were destroyed, as a thread in the background would. Returns whether that was all: what
    /// a vCPU may still use waits until it has run, or is dropped.
    pub fn reclaim(&self) -> bool {
        loop {
            match self.reclaimer.run_slice(Slice::default()) {
                Reclaimed::All => return true,
                Reclaimed::More => {}
                Reclaimed::Waits => return false,
            }
        }
    }
}

/// The host's memory: frames of the process, each at the address of its number.
#[derive(Debug)]
pub struct Memory {
    process: Arc<Process>,
    /// What was given out: first frame and order.
    given: Mutex<Vec<(Pfn, u32)>>,
}

impl Memory {
    /// Memory of at least so many pages, zeroed, for a memslot. It lasts as long as the machine.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`], when so many frames are not left.
    pub fn allocate(&self, pages: u64) -> Result<Hva, OutOfMemory> {
        let order = pages.checked_next_power_of_two().ok_or(OutOfMemory)?.trailing_zeros();
        let first = self.process.allocate(order)?;
        self.given().push((first, order));
        Ok(Hva::new(first.get() << PAGE_SHIFT))
    }

    /// The eight bytes at `hva`, which the host may read and write while guests run.
    ///
    /// # Panics
    ///
    /// If they are not of this memory, or `hva` is no multiple of eight.
    pub fn word(&self, hva: Hva) -> &AtomicU64 {
        let pfn = Pfn::new(hva.get() >> PAGE_SHIFT);
        assert!(self.has(pfn), "{hva} was not allocated");
        // SAFETY: this memory gave it out.
        unsafe { word(&self.process, pfn, hva.get()) }
    }

    fn given(&self) -> MutexGuard<'_, Vec<(Pfn, u32)>> {
        self.given.lock().unwrap()
    }

    fn has(&self, pfn: Pfn) -> bool {
        let holds = |&(first, order): &(Pfn, u32)| (pfn.get() ^ first.get()) >> order == 0;
        self.given().iter().any(holds)
    }
}

/// The word of frame `pfn` at `address` of whatever maps it.
///
/// # Safety
///
/// The frame was given out as guests' memory.
unsafe fn word(process: &Process, pfn: Pfn, address: u64) -> &AtomicU64 {
    let offset = address % PAGE_SIZE;
    assert!(offset.is_multiple_of(8), "{address:#x} is no multiple of eight");
    // SAFETY: what was given out as guests' memory stays so until the machine goes.
    unsafe { process.arena().word(pfn, offset as usize / 8) }
}

// SAFETY: frames that were given out as guests' memory, which stay so, and whose words are reached through atomics
// alone.
unsafe impl HostMemory<Hva> for Memory {
    fn resolve(&self, backing: Hva, _wanted: Permissions) -> Result<Resolved, HostFault> {
        let pfn = Pfn::new(backing.get() >> PAGE_SHIFT);
        if !self.has(pfn) {
            return Err(HostFault::NotMapped);
        }
        Ok(Resolved::memory(pfn, Level::PAGE, true))
    }

    fn linear_map(&self) -> *const AtomicU64 {
        self.process.linear_map()
    }
}

/// What a [`Program`] does: an access of eight bytes, at a multiple of eight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Stores a value.
    Store(u64, u64),
    /// Loads one: see [`Program::loaded`].
    Load(u64),
}

/// A guest that makes steps: by memory, where its tables allow it, and by its vCPU, where they do not.
#[derive(Debug)]
pub struct Program {
    process: Arc<Process>,
    steps: Vec<Step>,
    /// The step that is next.
    next: usize,
    loaded: Vec<u64>,
    pending: Option<Pending>,
}

/// The data of a step that the guest came out with.
#[derive(Debug)]
struct Pending {
    data: [u8; 8],
    answered: bool,
}

impl Program {
    /// What was loaded, in order.
    pub fn loaded(&self) -> &[u64] {
        &self.loaded
    }

    fn pending(&mut self) -> &mut Pending {
        self.pending.as_mut().expect("it came out with an access")
    }

    /// Makes a step, if the tables from `top` on allow it.
    fn make(&mut self, step: Step, top: Pfn) -> bool {
        let (gpa, wanted) = match step {
            Step::Store(gpa, _) => (gpa, Permissions::WRITE),
            Step::Load(gpa) => (gpa, Permissions::READ),
        };
        // Until the access is made, no frame of these tables, nor the memory that they lead to, is another's.
        let _access = self.process.access();
        let found = walk::<Ept>(self.process.arena(), top, Gpa::new(gpa).gfn());
        let Some((_, leaf)) = found.filter(|(_, leaf)| leaf.permissions.contains(wanted)) else {
            return false;
        };
        // SAFETY: tables name the frames that their VM's memory has said, which is the memory of this machine.
        let word = unsafe { word(&self.process, leaf.pfn, gpa) };
        match step {
            Step::Store(_, value) => word.store(value, Ordering::SeqCst),
            Step::Load(_) => self.loaded.push(word.load(Ordering::SeqCst)),
        }
        true
    }
}

impl Guest<Ept> for Program {
    fn enter(&mut self, translation: Translation<Ept>, requests: &Requests) -> Event {
        if let Some(Pending { data, answered: true }) = self.pending.take() {
            if let Step::Load(_) = self.steps[self.next] {
                self.loaded.push(u64::from_le_bytes(data));
            }
            self.next += 1;
        }
        assert_eq!(translation.tlbs(), self.process.tlbs(), "the vCPU is one of another machine");
        // SAFETY: nothing walks by it but this program, until it returns, and nothing that it has read is kept. The frames
        // are those of its machine.
        let top = unsafe { translation.load() }.top;
        while !requests.any() {
            let Some(&step) = self.steps.get(self.next) else { return Event::Halt };
            if !self.make(step, top) {
                let (gpa, value, write) = match step {
                    Step::Store(gpa, value) => (gpa, value, true),
                    Step::Load(gpa) => (gpa, 0, false),
                };
                self.pending = Some(Pending { data: value.to_le_bytes(), answered: false });
                return Event::Access(Access::data(Gpa::new(gpa), 8, write));
            }
            self.next += 1;
        }
        Event::Request
    }

    fn forget(&mut self, _gfn: Gfn) {}

    fn data(&mut self) -> &mut [u8] {
        &mut self.pending().data
    }

    fn answered(&mut self) {
        self.pending().answered = true;
    }
}

const _: () = assert!(!Ept::KEEPS_FAULTING && !Ept::KEEPS_ABSENT, "it has nothing to forget");
