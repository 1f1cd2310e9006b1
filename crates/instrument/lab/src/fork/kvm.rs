//! Forks on the running kernel's KVM: of a snapshot, which is a file in memory.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use mayfly_kvm::{Exit, GuestMemory, Kvm, MemoryFlags, Payload, Snapshot, Userfault, Vcpu, Vm};
use mayfly_record::Backend;

use super::design::Design;
use super::ground::{AGAIN, FIRST, Forked, Ground, Made, PAGE, Parent, content, touched};
use crate::start::Start;
use crate::work::Threads;

/// The port that ends the guest's pass.
const PORT: u16 = 0x10;

/// A guest that runs no more.
pub(super) struct Template {
    kvm: Kvm,
    snapshot: Arc<Snapshot>,
}

/// A VM that begins as the template was.
pub(super) struct Fork {
    vm: Vm,
    vcpu: Vcpu,
    memory: GuestMemory,
    userfault: Option<Userfault>,
    passes: u32,
}

/// Memory for a guest, of which every page was written.
fn written(size: usize) -> anyhow::Result<GuestMemory> {
    let memory = GuestMemory::map(size)?;
    Payload::install(&memory)?;
    for offset in (FIRST..size).step_by(PAGE) {
        memory.write(offset, &content(offset / PAGE).to_le_bytes())?;
    }
    Ok(memory)
}

fn payload(touch: Range<usize>) -> Payload {
    Payload { touch: touch.start as u64..touch.end as u64, doorbell: None, port: PORT }
}

impl Template {
    /// A guest of so many bytes, of which every page was written.
    pub(super) fn new(size: usize) -> anyhow::Result<Self> {
        let snapshot = Snapshot::take(&written(size)?).context("taking the snapshot")?;
        Ok(Self { kvm: Kvm::open()?, snapshot: Arc::new(snapshot) })
    }
}

impl Ground for Template {
    const BACKEND: Backend = Backend::Kvm;

    type Fork = Fork;

    fn fork(
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
            Design::Mayfly => bail!("KVM has no such forks"),
        };
        populate(&memory, ahead)?;
        let vm = Vm::create(&self.kvm)?;
        vm.set_memory_region(0, 0, &memory, MemoryFlags::default())?;
        let mut vcpu = vm.create_vcpu(0)?;
        let registers = Instant::now();
        vcpu.load(&payload(touched(pages)))?;
        let made = Made { fork: begun.elapsed(), registers: Some(registers.elapsed()) };
        Ok((Fork { vm, vcpu, memory, userfault, passes: 0 }, made))
    }

    fn reset(&self, fork: &Fork, design: Design, ahead: &[Range<usize>]) -> anyhow::Result<()> {
        if design.shares() {
            fork.memory.give_back()?;
        } else {
            self.snapshot.copy_to(&fork.memory)?;
        }
        populate(&fork.memory, ahead)
    }

    /// Every design takes the snapshot by copying the guest's memory, and the guest goes on in its own.
    fn parent(&self, _design: Design) -> anyhow::Result<Parent> {
        let memory = written(self.size())?;
        let vm = Vm::create(&self.kvm)?;
        vm.set_memory_region(0, 0, &memory, MemoryFlags::default())?;
        let (mut all, mut again) = (vm.create_vcpu(0)?, vm.create_vcpu(1)?);
        all.load(&payload(FIRST..self.size()))?;
        again.load(&payload(touched(AGAIN)))?;
        let start = Start { slots: vm.memory_regions() as u64, vcpus: 2, ..Start::default() };
        pass(&mut all, 1)?;
        let before = pass(&mut again, 1)?;
        let begun = Instant::now();
        let snapshot = Snapshot::take(&memory).context("taking the snapshot")?;
        let still = begun.elapsed();
        let after = pass(&mut again, 2)?;
        drop(snapshot);
        drop((vm.destroy(vec![all, again]), memory));
        Ok(Parent { cost: (still + after).saturating_sub(before), start })
    }

    fn size(&self) -> usize {
        self.snapshot.size()
    }

    fn read_u64(&self, offset: usize) -> anyhow::Result<u64> {
        Ok(self.snapshot.read_u64(offset)?)
    }

    fn threads(&self) -> Threads {
        Threads::default()
    }
}

fn populate(memory: &GuestMemory, ahead: &[Range<usize>]) -> anyhow::Result<()> {
    for run in ahead {
        memory.populate(run.clone())?;
    }
    Ok(())
}

/// Has a guest go through its pass number `number`. Returns how long that took.
fn pass(vcpu: &mut Vcpu, number: u32) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    let exit = vcpu.run_to_exit()?;
    let took = begun.elapsed();
    let answer = Exit::PortWrite { port: PORT, value: number };
    ensure!(exit == answer, "the guest came out with {exit:?}");
    Ok(took)
}

impl Forked for Fork {
    fn request(&mut self) -> anyhow::Result<Duration> {
        self.passes += 1;
        pass(&mut self.vcpu, self.passes)
    }

    fn passes(&self) -> u32 {
        self.passes
    }

    fn start(&self) -> Start {
        Start { slots: self.vm.memory_regions() as u64, vcpus: 1, ..Start::default() }
    }

    /// Without what the kernel has for it beside.
    fn own_kib(&self) -> anyhow::Result<u64> {
        Ok(self.memory.own_bytes()? >> 10)
    }

    /// The kernel counts those of its own MMU, which are others.
    fn faults(&self) -> Option<u64> {
        None
    }

    fn read_u64(&self, offset: usize) -> anyhow::Result<u64> {
        Ok(self.memory.read_u64(offset)?)
    }

    fn destroy(self) -> Duration {
        let Self { vm, vcpu, memory, userfault, .. } = self;
        let begun = Instant::now();
        let slots = vm.destroy(vec![vcpu]);
        drop((userfault, slots, memory));
        begun.elapsed()
    }
}
