//! A VM that becomes a snapshot, and forks that go on as it was, by each of KVM's ways.

use std::sync::Arc;

use anyhow::{bail, ensure};
use mayfly_kvm::{GuestMemory, Kvm, MemoryFlags, Snapshot, Userfault, Vm};
use mayfly_lifecycle_steps::course::{self, Counter as _, Vcpu as _};
use mayfly_lifecycle_steps::forked::{Life, answers_again, begins, count_wrong, fill, quiet};
use mayfly_lifecycle_steps::guest::{MEMORY, Order, REGION, answer};
use mayfly_lifecycle_steps::{Row, times};

use super::arch::{Counter, Start, install};
use super::guest::Obedient;
use super::registers::Registers;
use crate::way::Way;

/// The only slot.
const SLOT: u32 = 0;

pub(super) fn forks(
    kvm: &Kvm,
    start: &Start,
    counter: &mut Counter,
    way: Way,
) -> anyhow::Result<()> {
    let frozen = Frozen::take(kvm, start, counter, way)?;
    for life in Life::ALL {
        quiet(counter)?;
        frozen.live(life, counter)?;
    }
    Ok(())
}

/// What forks go on as.
struct Frozen<'a> {
    kvm: &'a Kvm,
    way: Way,
    snapshot: Arc<Snapshot>,
    registers: Registers,
}

/// A fork, whose registers are not set yet.
struct Fork {
    vm: Vm,
    vcpu: Obedient,
    memory: GuestMemory,
    userfault: Option<Userfault>,
}

impl<'a> Frozen<'a> {
    /// A guest that has its caches on and has asked for an order.
    fn take(kvm: &'a Kvm, start: &Start, counter: &mut Counter, way: Way) -> anyhow::Result<Self> {
        let (snapshot, memory) = Snapshot::to_come(usize::try_from(times::FORKED_BYTES)?)?;
        install(&memory)?;
        fill(|at, bytes| anyhow::Ok(memory.write(usize::try_from(at)?, bytes)?))?;
        let vm = Vm::create(kvm)?;
        vm.create_irqchip()?;
        vm.set_memory_region(SLOT, MEMORY, &memory, MemoryFlags::default())?;
        let mut vcpu = Obedient::new(&vm, 0, start)?;
        vm.finish_irqchip()?;
        vcpu.run()?;
        vcpu.obey(Order::Caches, 1)?;
        quiet(counter)?;
        course::asked(&mut vcpu, counter)?;

        let (registers, lent) = counter.step(Row::ForkFrozen, || {
            vcpu.rest()?;
            let registers = Registers::of(&vm, &vcpu.vcpu)?;
            Ok((registers, vm.destroy(vec![vcpu.into_vcpu()])))
        })?;
        drop((lent, memory));
        Ok(Self { kvm, way, snapshot: Arc::new(snapshot), registers })
    }

    fn live(&self, life: Life, counter: &mut Counter) -> anyhow::Result<()> {
        let mut begun = counter.now()?;
        let mut fork = self.fork(life)?;
        if life == Life::Registers {
            begun = counter.now()?;
        }
        self.registers.set(&fork.vcpu.vcpu)?;
        begins(life, &begun, &mut fork.vcpu, counter)?;
        if let Some(request) = life.request() {
            self.check(life, &fork.memory, request.pages)?;
            let begun = counter.now()?;
            self.go_back(life, &mut fork)?;
            if let Some(row) = life.reset() {
                counter.done(row, 1, &begun)?;
            }
            self.check(life, &fork.memory, 0)?;
            answers_again(life, request, &mut fork.vcpu, counter)?;
            self.check(life, &fork.memory, request.pages)?;
        }
        let begun = counter.now()?;
        fork.end();
        life.ended().map_or(Ok(()), |row| counter.done(row, 1, &begun))
    }

    fn fork(&self, life: Life) -> anyhow::Result<Fork> {
        let (memory, userfault) = match self.way {
            Way::MapPrivate | Way::Prefetch => (self.snapshot.mapped()?, None),
            Way::Copy => (self.snapshot.copied()?, None),
            Way::Userfault => {
                let (memory, served) = Userfault::of(&self.snapshot)?;
                (memory, Some(served))
            }
            other => bail!("{other} makes no forks"),
        };
        self.populate(life, &memory)?;
        let vm = Vm::create(self.kvm)?;
        vm.create_irqchip()?;
        vm.set_memory_region(SLOT, MEMORY, &memory, MemoryFlags::default())?;
        let vcpu = vm.create_vcpu(0)?;
        self.registers.initialize(&vcpu)?;
        vm.finish_irqchip()?;
        Ok(Fork { vm, vcpu: Obedient::of(vcpu), memory, userfault })
    }

    /// Has the pages of a fork be there that its guest is to write, if that is the way.
    fn populate(&self, life: Life, memory: &GuestMemory) -> anyhow::Result<()> {
        if self.way != Way::Prefetch {
            return Ok(());
        }
        let first = usize::try_from(REGION - MEMORY)?;
        Ok(memory.populate(first..first + 4096 * life.pages() as usize)?)
    }

    /// Has a fork go on as the frozen VM was, in its VM. What of an interrupt controller a guest could have changed stays.
    fn go_back(&self, life: Life, fork: &mut Fork) -> anyhow::Result<()> {
        // Or KVM would end the read that the guest came out for with the registers that are set now.
        fork.vcpu.rest()?;
        match self.way {
            Way::Copy => self.snapshot.copy_to(&fork.memory)?,
            _ => fork.memory.give_back()?,
        }
        self.populate(life, &fork.memory)?;
        self.registers.set(&fork.vcpu.vcpu)
    }

    /// Looks at the memory of a fork that has written so many pages, and at what all begin from.
    fn check(&self, life: Life, memory: &GuestMemory, written: u32) -> anyhow::Result<()> {
        if !life.is_checked() {
            return Ok(());
        }
        let word = |at| anyhow::Ok(memory.read_u64(usize::try_from(at)?)?);
        let wrong = count_wrong(written, word)?;
        let way = self.way;
        ensure!(wrong == 0, "by {way}, a fork has {wrong} pages that are not its own");
        let word = |at| anyhow::Ok(self.snapshot.read_u64(usize::try_from(at)?)?);
        let wrong = count_wrong(0, word)?;
        ensure!(wrong == 0, "by {way}, a fork has changed {wrong} pages of the snapshot");
        Ok(())
    }
}

impl Fork {
    fn end(self) {
        let Self { vm, vcpu, memory, userfault } = self;
        let lent = vm.destroy(vec![vcpu.into_vcpu()]);
        drop((userfault, lent, memory));
    }
}

impl Obedient {
    /// Has it be between two instructions: it has been told to ask again, and has not run.
    fn rest(&mut self) -> anyhow::Result<()> {
        self.answer(answer(Order::Ask, 0));
        let fd = self.vcpu.fd_mut();
        fd.set_kvm_immediate_exit(1);
        let left = fd.run().map(|exit| format!("{exit:?}"));
        fd.set_kvm_immediate_exit(0);
        match left {
            Err(error) if error.errno() == libc::EINTR => Ok(()),
            other => bail!("KVM_RUN that was to leave at once has returned {other:?}"),
        }
    }
}
