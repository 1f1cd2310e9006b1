//! VMs on the software machine whose vCPUs turn their caches on as a kernel's do at boot.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use mayfly_machine::address_space::Backing;
use mayfly_machine::cache::{LineCounts, Lines};
use mayfly_machine::scenario::{Rule, TableFormat};
use mayfly_machine::{
    Cpu, HostMemory, Instruction, Machine, MachineVcpu, MachineVm, Rigour, VmOptions,
};
use mayfly_memslot::{Gpa, SlotId};
use mayfly_platform::Op;
use mayfly_platform::address::PAGE_SHIFT;
use mayfly_platform::cache::{Cache, CacheCapabilities, InstructionCaches};
use mayfly_vm::Exit;

use crate::mapping::Mapping;
use crate::params::Size;
use crate::populate::{self, frames_for, touch};
use crate::start::Start;
use crate::work::{Interrupts, Meter, Spent, Threads};

use super::design::Design;

/// What the boot vCPU writes before its caches are on, in bytes: a kernel's first page tables, and what its image does
/// not have filled in.
pub(super) const BOOT: u64 = 256 << 10;
/// What each other vCPU does: a stack and a mailbox.
pub(super) const SECONDARY: u64 = 8 << 10;

/// The slot that these are in, at the beginning of guest memory; less, if there is less.
const EARLY: u64 = 4 << 20;

/// Processors that take nothing off the core's hands but the traps that it does not need.
const CAPABILITIES: CacheCapabilities =
    CacheCapabilities { instructions: InstructionCaches::Coherent, fgt: true };

/// A VM that comes up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) vcpus: u32,
    pub(super) memory: Size,
    pub(super) mapping: Mapping,
    pub(super) lines: Lines,
}

impl Shape {
    /// Bytes that all vCPUs together write before their caches are on.
    pub(super) fn written(self) -> u64 {
        BOOT + SECONDARY * u64::from(self.vcpus - 1)
    }

    /// Bytes that are mapped when all vCPUs are up.
    pub(super) fn mapped(self) -> u64 {
        let unit = self.mapping.level().pages() << PAGE_SHIFT;
        self.written().next_multiple_of(unit) + self.later()
    }

    /// Bytes of the slot that is written early.
    fn early(self) -> u64 {
        EARLY.min(self.memory.bytes())
    }

    /// Bytes that are written in setting up, with caches on.
    pub(super) fn later(self) -> u64 {
        self.memory.bytes() - self.early()
    }

    /// How many of these are mapped when so many secondary vCPUs are up: three quarters when the first comes, and some
    /// more after each.
    pub(super) fn later_at(self, up: u32) -> u64 {
        let (later, secondaries) = (self.later(), u64::from(self.vcpus - 1));
        if u64::from(up) >= secondaries {
            return later;
        }
        let whole = |bytes: u64| bytes / Size::UNIT.bytes() * Size::UNIT.bytes();
        let first = whole(later / 4 * 3);
        first + whole((later - first) / secondaries * u64::from(up))
    }
}

/// A machine, and memory for VMs on it: one VM at a time.
pub(super) struct Ground {
    machine: Machine<TableFormat>,
    shape: Shape,
    early: HostMemory,
    later: Option<HostMemory>,
}

/// A VM that is up.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured {
    /// What the VM had before its first vCPU ran.
    pub(super) start: Start,
    /// The first vCPU, without what it set up before the others came and between them.
    pub(super) boot: Piece,
    /// The others, in their order.
    pub(super) secondaries: Vec<Piece>,
    pub(super) set_up: Duration,
    pub(super) lines: LineCounts,
    pub(super) pages_flushed: u64,
    pub(super) tracking_faults: u64,
    pub(super) reads: u64,
    pub(super) mismatches: u64,
    /// On all ways up, which the calling thread goes; without what was set up.
    pub(super) spent: Spent,
}

/// A vCPU's way up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Piece {
    pub(super) time: Duration,
    /// Lines flushed on it.
    pub(super) flushed: u64,
    /// Lines cleaned on it, as memory was mapped.
    pub(super) cleaned: u64,
}

impl Ground {
    pub(super) fn new(shape: Shape) -> anyhow::Result<Self> {
        let Shape { vcpus, memory, mapping, lines } = shape;
        if shape.written() > shape.early() {
            bail!("{vcpus} vCPUs write more than {memory} before their caches are on");
        }
        let machine = Machine::with_caches(frames_for(memory)?, lines, CAPABILITIES)
            .context("starting the machine")?;
        machine.hardware().set_rigour(Rigour::empty());
        let early = machine.map_backed(shape.early(), mapping.backing())?;
        let backing = if lines == Lines::Counted { Backing::Contiguous } else { mapping.backing() };
        let later = (shape.later() > 0).then(|| machine.map_backed(shape.later(), backing));
        let ground = Self { machine, shape, early, later: later.transpose()? };
        touch(&ground.early, ground.early.size());
        if lines != Lines::Counted {
            ground.later.iter().for_each(|later| touch(later, later.size()));
        }
        Ok(ground)
    }

    /// Brings a VM up.
    pub(super) fn bring_up(&self, design: Design) -> anyhow::Result<Measured> {
        let rule = design.rule();
        let options = VmOptions { caches: rule.caches(), ..VmOptions::default() };
        let vm = self.machine.create_vm_with(options)?;
        self.set_slots(&vm)?;
        let mut vcpus = (0..self.shape.vcpus)
            .map(|id| Ok(Started::new(vm.create_vcpu(id)?, self.cpu())))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let (boot, secondaries) = vcpus.split_first_mut().context("there is a vCPU")?;

        let start = Start::of(&vm, self.machine.hardware().arena());
        let charged = self.charged();
        let before = self.machine.cache().lines();
        let interrupts = Interrupts::of(&self.machine);
        let metered = || Meter::begin(Threads::default().and_of(&self.machine));
        let meter = metered();
        let booted = self.piece(|| boot.come_up(&vm, &rule, 0..BOOT))?;
        let mut up = Measured { boot: booted, spent: meter.end(), start, ..Measured::default() };
        let mut mapped = self.shape.later_at(0);
        up.set_up = self.set_up(&vm, boot, &rule, 0..mapped)?;
        for (number, secondary) in (0..).zip(&mut *secondaries) {
            let first = BOOT + u64::from(number) * SECONDARY;
            let meter = metered();
            let piece = self.piece(|| secondary.come_up(&vm, &rule, first..first + SECONDARY))?;
            up.spent += &meter.end();
            up.secondaries.push(piece);
            let more = self.shape.later_at(number + 1);
            up.set_up += self.set_up(&vm, boot, &rule, mapped..more)?;
            mapped = more;
        }
        Interrupts::of(&self.machine).since(interrupts, &mut up.spent);
        for vcpu in &vcpus {
            up.reads += vcpu.reads;
            up.mismatches += vcpu.mismatches;
        }
        let (pages_flushed, tracking_faults) = self.charged();
        up.pages_flushed = pages_flushed - charged.0;
        up.tracking_faults = tracking_faults - charged.1;
        let after = self.machine.cache().lines();
        up.lines = LineCounts {
            cleaned: after.cleaned - before.cleaned,
            flushed: after.flushed - before.flushed,
            fetched: after.fetched - before.fetched,
            emptied: after.emptied - before.emptied,
        };
        drop(vcpus);
        let handle = (*vm).clone();
        vm.destroy();
        // So that the next VM does not begin beside the end of this one.
        handle.wait_reclaimed();
        Ok(up)
    }

    fn set_slots(&self, vm: &MachineVm<TableFormat>) -> anyhow::Result<()> {
        let slot = |id, gpa, memory: &HostMemory| {
            vm.set_memory_region(&memory.region(SlotId::main(id), Gpa::new(gpa)))
        };
        slot(0, 0, &self.early)?;
        if let Some(later) = &self.later {
            slot(1, self.shape.early(), later)?;
        }
        Ok(())
    }

    /// A processor out of reset.
    fn cpu(&self) -> Cpu<TableFormat> {
        let mut cpu = self.machine.cpu(Vec::new());
        cpu.turn_caches_off();
        cpu
    }

    fn piece(&self, work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Piece> {
        let before = self.machine.cache().lines();
        let begun = Instant::now();
        work()?;
        let time = begun.elapsed();
        let LineCounts { cleaned, flushed, .. } = self.machine.cache().lines();
        Ok(Piece { time, flushed: flushed - before.flushed, cleaned: cleaned - before.cleaned })
    }

    /// Pages flushed, and faults taken to know which.
    fn charged(&self) -> (u64, u64) {
        let hardware = self.machine.hardware();
        (hardware.charged(Op::Flushed(0)), hardware.charged(Op::TrackingFault))
    }

    /// Has a part of the memory mapped that is written when caches are on: by the guest, which writes each of its lines;
    /// or, where there is too much for that, as this would. Returns how long that took.
    fn set_up(
        &self,
        vm: &MachineVm<TableFormat>,
        boot: &mut Started,
        rule: &dyn Rule,
        part: Range<u64>,
    ) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        let Some(later) = self.later.as_ref().filter(|_| !part.is_empty()) else {
            return Ok(Duration::ZERO);
        };
        let early = self.shape.early();
        if self.shape.lines == Lines::Counted {
            let clean = |first, frames| self.machine.cache().clean(first, frames);
            let (gpa, mapping) = (Gpa::new(early), self.shape.mapping);
            populate::map_part(&self.machine, vm, gpa, (later, part), mapping, clean)?;
        } else {
            let (gpa, len) = (Gpa::new(early + part.start), part.end - part.start);
            boot.does(vm, rule, vec![Instruction::TouchLines { gpa, len, value: len }])?;
        }
        Ok(begun.elapsed())
    }
}

/// A vCPU and its processor.
struct Started {
    vcpu: MachineVcpu<TableFormat>,
    cpu: Cpu<TableFormat>,
    reads: u64,
    mismatches: u64,
}

impl Started {
    fn new(vcpu: MachineVcpu<TableFormat>, cpu: Cpu<TableFormat>) -> Self {
        Self { vcpu, cpu, reads: 0, mismatches: 0 }
    }

    /// Writes to each line of `early`, turns its caches on, and reads them.
    fn come_up(
        &mut self,
        vm: &MachineVm<TableFormat>,
        rule: &dyn Rule,
        early: Range<u64>,
    ) -> anyhow::Result<()> {
        let (gpa, len) = (Gpa::new(early.start), early.end - early.start);
        let value = early.end;
        let program = vec![
            Instruction::TouchLines { gpa, len, value },
            Instruction::Caches(true),
            Instruction::VerifyLines { gpa, len, value },
        ];
        self.does(vm, rule, program)
    }

    /// Runs a program to its end.
    fn does(
        &mut self,
        vm: &MachineVm<TableFormat>,
        rule: &dyn Rule,
        program: Vec<Instruction>,
    ) -> anyhow::Result<()> {
        self.cpu.load(program);
        loop {
            match self.vcpu.run(&mut self.cpu) {
                Exit::Halt => break,
                Exit::Caches(op) => rule.switched(vm, self.vcpu.id(), op),
                exit => bail!("vCPU {} came out with {exit:?}", self.vcpu.id()),
            }
        }
        self.reads += self.cpu.reads();
        self.mismatches += self.cpu.mismatches();
        Ok(())
    }
}
