//! Forks on the software machine: of an image, in an address space of its own for each fork.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use mayfly_machine::address_space::{Backing as Pages, HostSpace, Image, Notifier, NotifierId};
use mayfly_machine::{
    Arena, Cpu, HostMemory, Instruction, Machine, MachineVcpu, MachineWorld, Rigour, Telling,
    VmOptions,
};
use mayfly_memslot::{Gpa, SlotId};
use mayfly_platform::address::{Hva, PAGE_SIZE, Pfn};
use mayfly_platform::sync::Ordering;
use mayfly_record::Backend;
use mayfly_stage2::Ept;
use mayfly_vm::{Exit, Vm};

use super::design::Design;
use super::ground::{AGAIN, FIRST, Forked, Ground, Made, PAGE, Parent, content, touched};
use super::names::{MOST_UNSHARED, REQUESTS, largest};
use crate::before::notifiers::{Invalidate, Memory};
use crate::start::Start;
use crate::work::Threads;

/// Memories of a template's size that there are beside forks at once: the template, a parent and what it is copied to, and two
/// forks that are compared.
const BESIDE: u64 = 6;
/// Frames that a fork has beside those of its own pages: tables, and what the machine's stocks hold back.
const TABLES: u64 = 64;

/// Frames of a machine for guests of so many bytes, of which so many are there at once.
pub(super) fn frames(bytes: u64, forks: u32) -> usize {
    let largest = largest() as u64;
    let unshared = (MOST_UNSHARED as u64).max(bytes);
    let each = REQUESTS[0].count as u64 + TABLES;
    ((BESIDE * bytes + unshared) / PAGE_SIZE + 2 * largest + u64::from(forks) * each) as usize
}

/// A machine with a guest that runs no more.
pub(super) struct Template {
    machine: Machine,
    image: Arc<Image>,
    /// The processor, which forks have one after the other.
    cpu: Rc<RefCell<Cpu>>,
}

/// A VM that begins as the template was, or that is forked.
pub(super) struct Fork {
    vm: Vm<MachineWorld<Ept>>,
    vcpu: MachineVcpu,
    cpu: Rc<RefCell<Cpu>>,
    memory: HostMemory,
    space: Arc<HostSpace>,
    told: NotifierId,
    arena: Arc<Arena>,
    /// What a request does.
    pages: usize,
    passes: u32,
    faults: u64,
}

impl Template {
    /// A guest of so many bytes, of which every page was written, on a machine that has room for so many forks of it.
    pub(super) fn new(size: usize, forks: u32) -> anyhow::Result<Self> {
        let frames = frames(size as u64, forks);
        let machine = Machine::with_frames(frames).context("starting the machine")?;
        machine.hardware().set_rigour(Rigour::empty());
        let memory = machine.map(size as u64)?;
        for offset in (0..size).step_by(PAGE) {
            memory.write_u64(offset as u64, content(offset / PAGE));
        }
        let cpu = Rc::new(RefCell::new(machine.cpu(Vec::new())));
        Ok(Self { image: memory.freeze()?, machine, cpu })
    }

    /// A VM with such memory, which is told of changes as the design is.
    fn vm(
        &self,
        design: Design,
        space: Arc<HostSpace>,
        memory: HostMemory,
        pages: usize,
    ) -> anyhow::Result<Fork> {
        let vm = Vm::create(self.machine.config(&space, VmOptions::default()))?;
        let notifier: Arc<dyn Notifier> = match design {
            Design::MapPrivate => Arc::new(Invalidate(Memory::new(vm.clone(), memory.hvas()))),
            _ => Arc::new(Telling::new(vm.clone(), true)),
        };
        let told = space.register(notifier);
        vm.set_memory_region(&memory.region(SlotId::main(0), Gpa::new(0)))?;
        let vcpu = vm.create_vcpu(0)?;
        let arena = Arc::clone(self.machine.hardware().arena());
        let cpu = Rc::clone(&self.cpu);
        Ok(Fork { vm, vcpu, cpu, memory, space, told, arena, pages, passes: 0, faults: 0 })
    }

    /// Memory of its own, to which the pages are copied that `from` says.
    fn copied(
        &self,
        space: &Arc<HostSpace>,
        from: impl Fn(u64) -> anyhow::Result<Option<Pfn>>,
    ) -> anyhow::Result<HostMemory> {
        let memory = HostMemory::map(space, self.image.size(), Pages::Pages)?;
        self.copy_to(space, &memory, from)?;
        Ok(memory)
    }

    fn copy_to(
        &self,
        space: &HostSpace,
        memory: &HostMemory,
        from: impl Fn(u64) -> anyhow::Result<Option<Pfn>>,
    ) -> anyhow::Result<()> {
        let arena = self.machine.hardware().arena();
        for page in 0..memory.size() / PAGE_SIZE {
            let Some(from) = from(page)? else { continue };
            let to = space.resolve(hva(memory, page), true)?.pfn;
            for (from, to) in arena.words(from).zip(arena.words(to)) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

/// The address of page `page` of `memory`.
fn hva(memory: &HostMemory, page: u64) -> Hva {
    Hva::new(memory.hva().get() + page * PAGE_SIZE)
}

impl Ground for Template {
    const BACKEND: Backend = Backend::Machine;

    type Fork = Fork;

    fn fork(
        &self,
        design: Design,
        pages: usize,
        _ahead: &[Range<usize>],
    ) -> anyhow::Result<(Fork, Made)> {
        let begun = Instant::now();
        let space = self.machine.another_space();
        let memory = if design.shares() {
            HostMemory::map_image(&space, &self.image)?
        } else {
            self.copied(&space, |page| Ok(self.image.frame(page)))?
        };
        let fork = self.vm(design, space, memory, pages)?;
        Ok((fork, Made { fork: begun.elapsed(), registers: None }))
    }

    fn reset(&self, fork: &Fork, design: Design, _ahead: &[Range<usize>]) -> anyhow::Result<()> {
        if design.shares() {
            fork.memory.discard()?;
            return Ok(());
        }
        self.copy_to(&fork.space, &fork.memory, |page| Ok(self.image.frame(page)))
    }

    fn parent(&self, design: Design) -> anyhow::Result<Parent> {
        let space = self.machine.another_space();
        let memory = HostMemory::map(&space, self.image.size(), Pages::Pages)?;
        let mut parent = self.vm(design, space, memory, (self.size() - FIRST) / PAGE)?;
        parent.request()?;
        parent.pages = AGAIN;
        let before = parent.request()?;
        let start = parent.start();
        let begun = Instant::now();
        let (mut frozen, mut copy) = (None, None);
        if design.shares() {
            frozen = Some(parent.memory.freeze()?);
        } else {
            let from = |page| Ok(Some(parent.space.resolve(hva(&parent.memory, page), false)?.pfn));
            copy = Some(self.copied(&self.machine.another_space(), from)?);
        }
        let still = begun.elapsed();
        let after = parent.request()?;
        parent.destroy();
        drop((frozen, copy));
        Ok(Parent { cost: (still + after).saturating_sub(before), start })
    }

    fn size(&self) -> usize {
        self.image.size() as usize
    }

    fn read_u64(&self, offset: usize) -> anyhow::Result<u64> {
        Ok(self.image.read_u64(offset as u64))
    }

    fn threads(&self) -> Threads {
        Threads::default().and_of(&self.machine)
    }
}

impl Forked for Fork {
    fn request(&mut self) -> anyhow::Result<Duration> {
        self.passes += 1;
        let (gpa, range) = (Gpa::new(FIRST as u64), touched(self.pages));
        let instruction = if range.is_empty() {
            let value = content(FIRST / PAGE);
            Instruction::Verify { gpa, len: PAGE_SIZE, value }
        } else {
            Instruction::Touch { gpa, len: range.len() as u64, value: self.passes.into() }
        };
        let mut cpu = self.cpu.borrow_mut();
        cpu.load(vec![instruction]);
        let entered = cpu.tlb().entries;
        let begun = Instant::now();
        let exit = self.vcpu.run(&mut *cpu);
        let took = begun.elapsed();
        ensure!(exit == Exit::Halt, "the guest came out with {exit:?}");
        ensure!(cpu.mismatches() == 0, "the guest found {:?}", cpu.first_mismatch());
        // It came out once at its end.
        self.faults += (cpu.tlb().entries - entered).saturating_sub(1);
        Ok(took)
    }

    fn passes(&self) -> u32 {
        self.passes
    }

    fn start(&self) -> Start {
        Start::of(&self.vm, &self.arena)
    }

    /// With its tables.
    fn own_kib(&self) -> anyhow::Result<u64> {
        let frames = self.memory.own_pages()? + self.vm.stage2().frames() as u64;
        Ok((frames * PAGE_SIZE) >> 10)
    }

    fn faults(&self) -> Option<u64> {
        Some(self.faults)
    }

    fn read_u64(&self, offset: usize) -> anyhow::Result<u64> {
        Ok(self.memory.read_u64(offset as u64))
    }

    fn destroy(self) -> Duration {
        let Self { vm, vcpu, memory, space, told, .. } = self;
        let begun = Instant::now();
        drop(vcpu);
        vm.clone().destroy();
        space.unregister(told);
        vm.wait_reclaimed();
        drop((vm, memory, space));
        begun.elapsed()
    }
}
