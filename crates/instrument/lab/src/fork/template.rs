//! What forks begin from, and a fork of each design.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use mayfly_kvm::{Exit, GuestMemory, Kvm, MemoryFlags, Payload, Snapshot, Userfault, Vcpu, Vm};

use super::names::{COPY, PREFETCH, USERFAULT};

pub(super) const PAGE: usize = 4096;

/// The port that ends the guest's pass.
const PORT: u16 = 0x10;

/// Where the pages begin that requests write, one after the other.
pub(super) const FIRST: usize = Payload::FREE as usize;

/// How a fork gets its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Design {
    /// All of it is copied.
    Copy,
    /// The snapshot's file, mapped privately.
    MapPrivate,
    /// A thread of this process serves its faults.
    Userfault,
    /// As [`Design::MapPrivate`], with the pages that an earlier fork has written written ahead.
    Prefetch,
}

impl Design {
    pub(super) fn of(variant: &str) -> Self {
        match variant {
            COPY => Self::Copy,
            USERFAULT => Self::Userfault,
            PREFETCH => Self::Prefetch,
            _ => Self::MapPrivate,
        }
    }
}

/// A guest that runs no more.
pub(super) struct Template {
    kvm: Kvm,
    snapshot: Arc<Snapshot>,
}

/// A VM that begins as a template was.
pub(super) struct Fork {
    vm: Vm,
    vcpu: Vcpu,
    pub(super) memory: GuestMemory,
    userfault: Option<Userfault>,
    pass: u32,
}

/// What making a fork took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    /// All of it.
    pub(super) fork: Duration,
    /// The vCPU's registers alone.
    pub(super) registers: Duration,
}

/// What every page of a template begins with: its number, and a mark.
fn content(page: usize) -> u64 {
    0xfeed_0000_0000_0000 | page as u64
}

/// The range of pages that a request writes.
pub(super) fn touched(pages: usize) -> Range<usize> {
    FIRST..FIRST + pages * PAGE
}

impl Template {
    /// A guest of so many bytes, of which every page was written.
    pub(super) fn new(size: usize) -> anyhow::Result<Self> {
        let memory = GuestMemory::map(size)?;
        Payload::install(&memory)?;
        for offset in (FIRST..size).step_by(PAGE) {
            memory.write(offset, &content(offset / PAGE).to_le_bytes())?;
        }
        let snapshot = Snapshot::take(&memory).context("taking the snapshot")?;
        Ok(Self { kvm: Kvm::open()?, snapshot: Arc::new(snapshot) })
    }

    /// Makes a fork of which a request writes so many pages. `ahead` are pages to be written ahead.
    pub(super) fn fork(
        &self,
        design: Design,
        pages: usize,
        ahead: &[Range<usize>],
    ) -> anyhow::Result<(Fork, Made)> {
        let begun = Instant::now();
        let (memory, userfault) = match design {
            Design::Copy => (self.snapshot.copied()?, None),
            Design::MapPrivate | Design::Prefetch => (self.snapshot.mapped()?, None),
            Design::Userfault => {
                let (memory, served) = Userfault::of(&self.snapshot)?;
                (memory, Some(served))
            }
        };
        populate(&memory, ahead)?;
        let vm = Vm::create(&self.kvm)?;
        vm.set_memory_region(0, 0, &memory, MemoryFlags::default())?;
        let mut vcpu = vm.create_vcpu(0)?;
        let registers = Instant::now();
        let range = touched(pages);
        let touch = range.start as u64..range.end as u64;
        vcpu.load(&Payload { touch, doorbell: None, port: PORT })?;
        let made = Made { fork: begun.elapsed(), registers: registers.elapsed() };
        Ok((Fork { vm, vcpu, memory, userfault, pass: 0 }, made))
    }

    /// Has a fork's memory be the template's again; what it has written is gone.
    pub(super) fn reset(
        &self,
        fork: &Fork,
        design: Design,
        ahead: &[Range<usize>],
    ) -> anyhow::Result<()> {
        match design {
            Design::Copy => self.snapshot.copy_to(&fork.memory)?,
            Design::MapPrivate | Design::Userfault | Design::Prefetch => fork.memory.give_back()?,
        }
        populate(&fork.memory, ahead)
    }

    /// The pages that a fork has written, those that follow each other together.
    pub(super) fn written(&self, fork: &Fork) -> anyhow::Result<Vec<Range<usize>>> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for offset in (0..self.snapshot.size()).step_by(PAGE) {
            if fork.memory.read_u64(offset)? == self.snapshot.read_u64(offset)? {
                continue;
            }
            match runs.last_mut() {
                Some(last) if last.end == offset => last.end += PAGE,
                _ => runs.push(offset..offset + PAGE),
            }
        }
        Ok(runs)
    }

    /// How many pages the template has that are not as they were when it was made.
    pub(super) fn changed(&self) -> anyhow::Result<usize> {
        let mut changed = 0;
        for offset in (FIRST..self.snapshot.size()).step_by(PAGE) {
            changed += usize::from(self.snapshot.read_u64(offset)? != content(offset / PAGE));
        }
        Ok(changed)
    }
}

fn populate(memory: &GuestMemory, ahead: &[Range<usize>]) -> anyhow::Result<()> {
    for run in ahead {
        memory.populate(run.clone())?;
    }
    Ok(())
}

impl Fork {
    /// Has the guest write its pages and answer. Returns how long that took.
    pub(super) fn request(&mut self) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        let exit = self.vcpu.run_to_exit()?;
        let took = begun.elapsed();
        self.pass += 1;
        let answer = Exit::PortWrite { port: PORT, value: self.pass };
        ensure!(exit == answer, "the guest came out with {exit:?}");
        Ok(took)
    }

    /// Memslots that it has.
    pub(super) fn slots(&self) -> u64 {
        self.vm.memory_regions() as u64
    }

    /// KiB of memory that it has of its own. What the kernel has for it beside is not counted.
    pub(super) fn own_kib(&self) -> anyhow::Result<u64> {
        Ok(self.memory.own_bytes()? >> 10)
    }

    /// Pages among those that a request of `pages` writes that do not say so, and pages behind them that are not the
    /// template's.
    pub(super) fn wrong(&self, pages: usize) -> anyhow::Result<usize> {
        let (range, mut wrong) = (touched(pages), 0);
        for offset in (FIRST..self.memory.size()).step_by(PAGE) {
            let right =
                if range.contains(&offset) { self.pass.into() } else { content(offset / PAGE) };
            wrong += usize::from(self.memory.read_u64(offset)? != right);
        }
        Ok(wrong)
    }

    /// Ends it. Returns how long that took, with its memory.
    pub(super) fn destroy(self) -> Duration {
        let Self { vm, vcpu, memory, userfault, .. } = self;
        let begun = Instant::now();
        let slots = vm.destroy(vec![vcpu]);
        drop((userfault, slots, memory));
        begun.elapsed()
    }
}
