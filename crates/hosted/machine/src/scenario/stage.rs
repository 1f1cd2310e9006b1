//! Where scenarios are played: a machine with an oracle, a VM, its memory.

use std::sync::{Mutex, MutexGuard, PoisonError};

use mayfly_memslot::{Flags, Gpa, Hva, Region, SlotId};
use mayfly_platform::address::{PAGE_SHIFT, Pfn};
use mayfly_platform::cache::{Cache, CacheCapabilities};
use mayfly_stage2::{Format, Level};
use mayfly_vm::{Caches, Exit, SlotZap};

use super::played::{Failure, Played, Stale};
use super::rule::{Rule, TableFormat};
use crate::address_space::Backing;
use crate::cache::{Lines, Oracle};
use crate::lock::lock;
use crate::reach::Reach;
use crate::{
    Cpu, HostMemory, Instruction, Machine, MachineVcpu, MachineVm, Mismatch, Rigour, VmOptions,
};

/// Pages that scenarios name by number, each in a block of its own.
pub(super) const PAGES: u64 = 4;

/// Frames of the machine: the memory, what becomes of it, and tables.
const FRAMES: usize = 1 << 13;

/// A slot's memory, in blocks.
const BLOCK: u64 = Level::MIB2.pages() << PAGE_SHIFT;

/// What a scenario is played on.
#[derive(Clone, Copy)]
pub(super) struct Conditions {
    pub(super) capabilities: CacheCapabilities,
    pub(super) slot_zap: SlotZap,
}

/// A VM, and what its guests have found.
pub(super) struct Stage<'a, F: Format = TableFormat> {
    pub(super) vm: MachineVm<F>,
    pub(super) memory: HostMemory,
    pub(super) machine: Machine<F>,
    rule: &'a dyn Rule,
    played: Mutex<Played>,
}

impl<'a, F: Format> Stage<'a, F> {
    /// Has `play` played on a new one.
    pub(super) fn play(
        play: fn(&Self) -> Result<(), Failure>,
        rule: &'a dyn Rule,
        conditions: Conditions,
        backing: Backing,
    ) -> Result<Played, Failure> {
        let stage = Self::new(rule, conditions, backing)?;
        play(&stage)?;
        Ok(stage.close())
    }

    fn new(
        rule: &'a dyn Rule,
        Conditions { capabilities, slot_zap }: Conditions,
        backing: Backing,
    ) -> Result<Self, Failure> {
        let machine = Machine::with_caches(FRAMES, Lines::Modelled, capabilities)?;
        let caches = rule.caches();
        let vm = machine.create_vm_with(VmOptions { slot_zap, caches, ..VmOptions::default() })?;
        let memory = machine.map_backed(PAGES * BLOCK, backing)?;
        let stage = Self { vm, memory, machine, rule, played: Mutex::default() };
        stage.set_slot(Flags::empty(), stage.memory.size())?;
        Ok(stage)
    }

    /// Sets the VM's slot, which begins at 0.
    pub(super) fn set_slot(&self, flags: Flags, size: u64) -> Result<(), Failure> {
        let region = self.memory.region(SlotId::main(0), at(0));
        Ok(self.vm.set_memory_region(&Region { flags, size, ..region })?)
    }

    /// Walks find what is written at once, from now on: a processor may be late to find it, and need not be.
    pub(super) fn walks_early(&self) {
        self.machine.hardware().set_rigour(Rigour::all() - Rigour::WALKS_LATE);
    }

    /// A vCPU as it comes out of reset: with its caches off.
    pub(super) fn vcpu(&self, id: u32) -> Result<Actor<'_, F>, Failure> {
        let vcpu = self.vm.create_vcpu(id)?;
        let mut cpu = self.machine.cpu(Vec::new());
        cpu.turn_caches_off();
        Ok(Actor { stage: self, vcpu, cpu })
    }

    /// The host's address of a page.
    pub(super) fn hva(&self, page: u64) -> Hva {
        Hva::new(self.memory.hva().get() + at(page).get())
    }

    /// The host writes to a page.
    pub(super) fn host_writes(&self, page: u64, value: u64) {
        self.memory.write_u64(at(page).get(), value);
    }

    /// The host reads a copy of `page` that it has at `hva`, which has to say that.
    pub(super) fn host_reads(&self, page: u64, hva: Hva, expected: u64) -> Result<(), Failure> {
        let read = self.machine.space().read_u64(hva)?;
        let frame = self.machine.space().resolve(hva, false)?.pfn;
        let hpa = frame.hpa().ok_or("a frame beyond all addresses")?;
        let other_way = Reach::new(self.machine.hardware().arena(), true).other_way(hpa);
        let mut played = self.played();
        played.reads += 1;
        if read != expected {
            let mismatch = Mismatch { gpa: at(page), expected, read, other_way };
            played.stale.push(Stale { vcpu: None, mismatch });
        }
        Ok(())
    }

    /// The frame that a page is in.
    pub(super) fn frame(&self, page: u64) -> Result<Pfn, Failure> {
        Ok(self.machine.space().resolve(self.hva(page), false)?.pfn)
    }

    /// To be called before the host takes a page away, or the VM a slot. Linux cleans and invalidates what it unmaps
    /// (`stage2_unmap_walker`, `arch/arm64/kvm/hyp/pgtable.c`), and the older rules rely on that.
    pub(super) fn about_to_unmap(&self, page: u64) -> Result<(), Failure> {
        if self.rule.caches() == Caches::Reported {
            self.machine.cache().clean_invalidate(self.frame(page)?, 1);
        }
        Ok(())
    }

    pub(super) fn oracle(&self) -> Result<&Oracle, Failure> {
        Ok(self.machine.hardware().arena().oracle().ok_or("the machine has no oracle")?)
    }

    /// How it went.
    fn close(self) -> Played {
        let mut played = self.played.into_inner().unwrap_or_else(PoisonError::into_inner);
        played.lines = self.machine.cache().lines();
        played
    }

    fn note(&self, vcpu: u32, cpu: &Cpu<F>) {
        let mut played = self.played();
        played.reads += cpu.reads();
        let stale = |mismatch| Stale { vcpu: Some(vcpu), mismatch };
        played.stale.extend(cpu.first_mismatch().map(stale));
    }

    fn played(&self) -> MutexGuard<'_, Played> {
        lock(&self.played)
    }
}

/// A vCPU and its processor.
pub(super) struct Actor<'a, F: Format = TableFormat> {
    stage: &'a Stage<'a, F>,
    vcpu: MachineVcpu<F>,
    cpu: Cpu<F>,
}

impl<F: Format> Actor<'_, F> {
    /// Runs a program to its end.
    pub(super) fn does(&mut self, program: impl Into<Vec<Instruction>>) -> Result<(), Failure> {
        self.cpu.load(program.into());
        let id = self.vcpu.id();
        loop {
            match self.vcpu.run(&mut self.cpu) {
                Exit::Halt => break,
                Exit::Caches(op) => self.stage.rule.switched(&self.stage.vm, id, op),
                exit => return Err(format!("vCPU {id} came out with {exit:?}").into()),
            }
        }
        self.stage.note(id, &self.cpu);
        Ok(())
    }
}

/// The guest's address of a page.
fn at(page: u64) -> Gpa {
    Gpa::new(page * (BLOCK + (1 << PAGE_SHIFT)))
}

/// Writes to a page.
pub(super) fn write(page: u64, value: u64) -> Instruction {
    Instruction::Touch { gpa: at(page), len: 1, value }
}

/// Reads a page, which has to say that.
pub(super) fn read(page: u64, value: u64) -> Instruction {
    Instruction::Verify { gpa: at(page), len: 1, value }
}

/// Reads a page, whatever it says.
pub(super) fn look(page: u64) -> Instruction {
    Instruction::ReadMmio { gpa: at(page), len: 8 }
}

pub(super) const ON: Instruction = Instruction::Caches(true);
pub(super) const OFF: Instruction = Instruction::Caches(false);
pub(super) const SET_WAY: Instruction = Instruction::SetWay;
