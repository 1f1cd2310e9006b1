//! The lifecycles.

use std::fs::read_to_string;
use std::thread;

use anyhow::{Context, anyhow, ensure};
use mayfly_kvm::{GuestMemory, HugePages, IoEvent, Kvm, MemoryFlags, Vm};
use mayfly_lifecycle_steps::course::{self, Counter as _, Side, Vcpu as _};
use mayfly_lifecycle_steps::guest::{
    DOORBELL, DOORBELL_BYTES, LATER_DOORBELL, MEMORY, MEMORY_BYTES, Order, REGION,
};
use mayfly_lifecycle_steps::large::{Goes, Large, Mapping};
use mayfly_lifecycle_steps::{Course, Row, times};

use super::arch::{Counter, Start, install};
#[cfg(target_arch = "aarch64")]
use super::forked::forks;
use super::guest::Obedient;
use super::logged::logged;
use crate::kernel_at::KernelAt;
use crate::way::Way;

const BLOCK: u64 = 2 << 20;

/// Counts a course for so many rounds, by this way where there are several.
pub(super) fn all(
    course: Course,
    way: Option<Way>,
    rounds: u32,
    kernel_at: KernelAt,
) -> anyhow::Result<String> {
    let kvm = Kvm::open()?;
    let start = Start::of(&kvm)?;
    let mut linux = Linux { kvm, start, counter: Counter::begin(kernel_at)?, way };
    for _ in 0..rounds {
        linux.round_of(course)?;
    }
    Ok(linux.counter.lines())
}

/// KVM's side.
struct Linux {
    kvm: Kvm,
    start: Start,
    counter: Counter,
    /// How dirty logs or forks are made.
    way: Option<Way>,
}

impl Linux {
    fn way(&self) -> anyhow::Result<Way> {
        self.way.context("it is not said by which way")
    }
}

impl Side for Linux {
    type Error = anyhow::Error;

    fn nothing(&mut self) -> anyhow::Result<()> {
        self.counter.step(Row::Nothing, || Ok(()))
    }

    fn memory(&mut self, mapping: Mapping) -> anyhow::Result<()> {
        let counter = &mut self.counter;
        let memory = counter.step(mapping.made(), || make(times::BYTES, mapping))?;
        counter.step(mapping.freed(), || {
            drop(memory);
            Ok(())
        })
    }

    fn small(&mut self) -> anyhow::Result<()> {
        small(&self.kvm, &self.start, &mut self.counter)
    }

    fn large(&mut self, lifecycle: Large) -> anyhow::Result<()> {
        large(&self.kvm, &self.start, &mut self.counter, lifecycle)
    }

    fn logged(&mut self, mapping: Mapping) -> anyhow::Result<()> {
        let way = self.way()?;
        logged(&self.kvm, &self.start, &mut self.counter, way, mapping)
    }

    #[cfg(target_arch = "aarch64")]
    fn forks(&mut self) -> anyhow::Result<()> {
        let way = self.way()?;
        forks(&self.kvm, &self.start, &mut self.counter, way)
    }

    #[cfg(not(target_arch = "aarch64"))]
    fn forks(&mut self) -> anyhow::Result<()> {
        anyhow::bail!("forks are counted on arm64 alone")
    }

    fn interrupted(&mut self) -> anyhow::Result<()> {
        interrupted(&self.kvm, &self.start, &mut self.counter)
    }

    fn at_once(&mut self) -> anyhow::Result<()> {
        at_once(&self.kvm, &mut self.counter)
    }

    fn cached(&mut self) -> anyhow::Result<()> {
        cached(&self.kvm, &self.start, &mut self.counter)
    }
}

/// Memory of a VM, all of it populated.
fn make(bytes: u64, mapping: Mapping) -> anyhow::Result<GuestMemory> {
    let memory = GuestMemory::map(usize::try_from(bytes)?)?;
    memory.advise(match mapping {
        Mapping::Pages => HugePages::Unwanted,
        Mapping::Blocks => HugePages::Wanted,
    })?;
    for touched in mapping.touches(bytes) {
        memory.write(usize::try_from(touched)?, &[0])?;
    }
    Ok(memory)
}

/// The same, of the size of pages that it was asked for.
pub(super) fn memory(bytes: u64, mapping: Mapping) -> anyhow::Result<GuestMemory> {
    let huge_before = huge_kib()?;
    let memory = make(bytes, mapping)?;
    if matches!(mapping, Mapping::Blocks) {
        let huge = huge_kib()?.saturating_sub(huge_before) << 10;
        ensure!(huge >= bytes, "only {huge} of {bytes} bytes are in huge pages");
    }
    Ok(memory)
}

/// KiB of this process that are in huge pages.
fn huge_kib() -> anyhow::Result<u64> {
    let path = "/proc/self/smaps_rollup";
    let rollup = read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("AnonHugePages:"));
    let number = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok());
    number.with_context(|| format!("{path} has no AnonHugePages line"))
}

fn doorbell(at: u64) -> anyhow::Result<IoEvent> {
    Ok(IoEvent::new(at, DOORBELL_BYTES as u32, None)?)
}

/// A small VM: everything that a vCPU does, and the short steps.
fn small(kvm: &Kvm, start: &Start, counter: &mut Counter) -> anyhow::Result<()> {
    let memory = memory(4 * MEMORY_BYTES, Mapping::Pages)?;
    install(&memory)?;
    let (first, later) = (doorbell(DOORBELL)?, doorbell(LATER_DOORBELL)?);

    let vm = counter.step(Row::VmCreated, || Ok(Vm::create(kvm)?))?;
    counter.step(Row::MachineCreated, || Ok(vm.create_irqchip()?))?;
    counter.step(Row::DeviceFirst, || Ok(vm.register_ioeventfd(&first)?))?;
    counter.step(Row::FirstMemslot, || {
        Ok(vm.set_memory_region(0, MEMORY, &memory, MemoryFlags::default())?)
    })?;
    let mut vcpu = counter.step(Row::VcpuCreated, || Obedient::new(&vm, 0, start))?;
    counter.step(Row::DeviceLater, || Ok(vm.register_ioeventfd(&later)?))?;

    vm.finish_irqchip()?;
    vcpu.run()?;
    course::small(&mut vcpu, counter)?;
    let rung = first.take()?;
    ensure!(rung == u64::from(times::TIMES), "the doorbell has rung {rung} times");

    let lent = counter.step(Row::Destroyed, || Ok(vm.destroy(vec![vcpu.into_vcpu()])))?;
    drop(lent);
    Ok(())
}

/// A VM with a slot of its own for the pages that its guest writes to.
fn large(kvm: &Kvm, start: &Start, counter: &mut Counter, large: Large) -> anyhow::Result<()> {
    let code = memory(MEMORY_BYTES, Mapping::Pages)?;
    let region = memory(times::BYTES, large.mapping)?;
    install(&code)?;
    let vm = Vm::create(kvm)?;
    vm.create_irqchip()?;
    vm.set_memory_region(0, MEMORY, &code, MemoryFlags::default())?;
    vm.set_memory_region(1, REGION, &region, MemoryFlags::default())?;
    let mut vcpu = Obedient::new(&vm, 0, start)?;
    vm.finish_irqchip()?;
    vcpu.run()?;

    course::touches(large, &mut vcpu, counter)?;

    let vcpu = vcpu.into_vcpu();
    match large.goes {
        Goes::Deleted => {
            counter.step(large.end(), || Ok(vm.delete_memory_region(1)?))?;
            vm.destroy(vec![vcpu]);
        }
        Goes::Destroyed => {
            let lent = counter.step(large.end(), || Ok(vm.destroy(vec![vcpu])))?;
            drop(lent);
        }
    }
    Ok(())
}

/// A VM of two vCPUs that take interrupts. The second has a thread of its own, on the only processor.
fn interrupted(kvm: &Kvm, start: &Start, counter: &mut Counter) -> anyhow::Result<()> {
    let memory = memory(MEMORY_BYTES, Mapping::Pages)?;
    install(&memory)?;
    let vm = Vm::create(kvm)?;
    vm.create_irqchip()?;
    vm.set_memory_region(0, MEMORY, &memory, MemoryFlags::default())?;
    let (mut first, mut second) = (Obedient::new(&vm, 0, start)?, Obedient::new(&vm, 1, start)?);
    vm.finish_irqchip()?;
    // The process is a machine's only one, which ends with it: so nothing has to end a vCPU that waits for ever because the
    // other has failed, but the failure is to be said.
    let second = thread::spawn(move || {
        let answered = second.run().and_then(|()| course::answer_interrupts(&mut second));
        if let Err(error) = &answered {
            eprintln!("mayfly: the second vCPU has not answered: {error:#}");
        }
        answered.map(|()| second.into_vcpu())
    });
    first.run()?;
    course::interrupts(&mut first, counter)?;
    let second = second.join().map_err(|_| anyhow!("the thread of the second vCPU panicked"))??;
    vm.destroy(vec![first.into_vcpu(), second]);
    Ok(())
}

/// VMs in which something follows at once after a device was registered.
fn at_once(kvm: &Kvm, counter: &mut Counter) -> anyhow::Result<()> {
    let memory = memory(MEMORY_BYTES, Mapping::Pages)?;
    let (first, later) = (doorbell(DOORBELL)?, doorbell(LATER_DOORBELL)?);
    let vm = Vm::create(kvm)?;
    vm.create_irqchip()?;
    counter.settle();
    vm.register_ioeventfd(&first)?;
    counter.step(Row::MemslotAtOnce, || {
        Ok(vm.set_memory_region(0, MEMORY, &memory, MemoryFlags::default())?)
    })?;
    vm.register_ioeventfd(&later)?;
    counter.step(Row::UnregisteredAtOnce, || Ok(vm.unregister_ioeventfd(&later)?))?;
    vm.register_ioeventfd(&later)?;
    let lent = counter.step(Row::ClosedAtOnce, || Ok(vm.destroy(Vec::new())))?;
    drop(lent);
    Ok(())
}

/// A VM whose vCPUs turn their caches on.
fn cached(kvm: &Kvm, start: &Start, counter: &mut Counter) -> anyhow::Result<()> {
    let memory = memory(MEMORY_BYTES + times::CACHED_BYTES, Mapping::Blocks)?;
    install(&memory)?;
    let vm = Vm::create(kvm)?;
    vm.create_irqchip()?;
    vm.set_memory_region(0, MEMORY, &memory, MemoryFlags::default())?;
    let vcpus = (0..times::CACHED_VCPUS).map(|number| Obedient::new(&vm, number, start));
    let mut vcpus = vcpus.collect::<anyhow::Result<Vec<_>>>()?;
    vm.finish_irqchip()?;
    for vcpu in &mut vcpus {
        vcpu.run()?;
    }
    vcpus[0].obey(Order::Blocks, u32::try_from(times::CACHED_BYTES / BLOCK)?)?;

    let begun = counter.now()?;
    for vcpu in &mut vcpus {
        vcpu.obey(Order::Caches, 1)?;
    }
    counter.done(Row::CachesOn, 1, &begun)?;
    vm.destroy(vcpus.into_iter().map(Obedient::into_vcpu).collect());
    Ok(())
}
