//! VMs to count on.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::AtomicBool;
use core::time::Duration;

use mayfly_vm::memslot::{Flags, Gpa, Hva, PAGE_SIZE, Region, SlotId};
use mayfly_vm::platform::cache::InstructionCaches;
use mayfly_vm::stage2::{Arm, Reclaimed, Reclaimer, Slice, Vmids};
use mayfly_vm::{Caches, Config, Device, Event, Exit, SlotZap, Vcpu, Vm, World, stage2};

use crate::guest::Script;
use crate::memory::Memory;
use crate::platform::Machine;
use crate::step::{self, Counts};

/// What the VMs are made of: Arm's stage 2 with 40 bits, whose root is two tables, 1,024 entries.
pub(crate) struct Kinds;

pub(crate) type Format = Arm<40>;

impl World for Kinds {
    type Device = Box<dyn Device>;
    type Backing = Hva;
    type Format = Format;
    type Memory = Memory;
}

pub(crate) struct Setup {
    pub(crate) machine: Arc<Machine>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) vmids: Vmids,
    pub(crate) reclaimer: Arc<Reclaimer<Format>>,
    pub(crate) caches: Caches,
}

impl Setup {
    pub(crate) fn new(caches: Caches, in_blocks: bool) -> Self {
        // A VM without cache maintenance is one whose instruction caches need none.
        let machine = Machine::new(match caches {
            Caches::Coherent => InstructionCaches::Coherent,
            _ => InstructionCaches::Physical,
        });
        Self {
            memory: Arc::new(Memory { in_blocks, writable: AtomicBool::new(true) }),
            // SAFETY: no guest is entered.
            vmids: unsafe { Vmids::try_new(machine.clone(), 8) }.unwrap(),
            reclaimer: Arc::new(Reclaimer::new(machine.clone(), Reclaimer::<Format>::BOUND)),
            machine,
            caches,
        }
    }

    pub(crate) fn config(&self) -> Config<Kinds> {
        Config {
            srcu: mayfly_vm::srcu::Config::default(),
            stage2: stage2::Config {
                mmu: self.machine.clone(),
                vmids: self.vmids.clone(),
                reclaimer: self.reclaimer.clone(),
                max_frames: usize::MAX,
            },
            memory: self.memory.clone(),
            cache: self.machine.clone(),
            caches: self.caches,
            slot_zap: SlotZap::Range,
            // The machine's clock stands still.
            slice: Slice { time: Duration::MAX, ..Slice::default() },
        }
    }

    pub(crate) fn vm(&self) -> Vm<Kinds> {
        Vm::create(self.config()).unwrap()
    }

    pub(crate) fn reclaim(&self) {
        while self.reclaimer.run_slice(Slice::default()) == Reclaimed::More {}
    }
}

/// Slot `index`, of `pages` pages at guest frame `gfn`.
pub(crate) fn region(index: u16, gfn: u64, pages: u64) -> Region<Hva> {
    Region {
        slot: SlotId::main(index),
        flags: Flags::empty(),
        gpa: Gpa::new(gfn * PAGE_SIZE),
        size: pages * PAGE_SIZE,
        backing: Hva::new((u64::from(index) + 1) << 32),
    }
}

/// The same, to delete it.
pub(crate) fn deleted(region: Region<Hva>) -> Region<Hva> {
    Region { size: 0, ..region }
}

/// Has the guest touch a page.
pub(crate) fn touch(vcpu: &mut Vcpu<Kinds>, gfn: u64, write: bool) -> Counts {
    exit(vcpu, Script::access(gfn * PAGE_SIZE, write))
}

/// What it takes from the guest's exit to its next entry.
pub(crate) fn exit(vcpu: &mut Vcpu<Kinds>, mut guest: Script) -> Counts {
    let exit = vcpu.run(&mut guest);
    assert!(exit == Exit::Halt, "{exit:?}");
    step::counts()
}

/// An exit that is none of the core's business: a hypercall that the world switch has answered.
pub(crate) fn hypercall() -> Script {
    Script::new(Event::Request)
}
