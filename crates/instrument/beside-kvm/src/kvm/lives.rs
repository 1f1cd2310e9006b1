//! The lives.

use std::fs::read_to_string;

use anyhow::{Context, ensure};
use mayfly_kvm::{GuestMemory, HugePages, IoEvent, Kvm, MemoryFlags, Payload, Vm};
use mayfly_lifecycle_steps::guest::{
    DOORBELL, DOORBELL_BYTES, LATER_DOORBELL, MEMORY, MEMORY_BYTES, Order, REGION, TABLE, program,
    table,
};
use mayfly_lifecycle_steps::large::{Goes, Large, Mapping};
use mayfly_lifecycle_steps::{Row, times};

use super::KernelAt;
use super::counted::Counter;
use super::guest::Obedient;

const PAGE: usize = 4096;
const BLOCK: u64 = 2 << 20;

/// Where [`Vm::create_irqchip`] puts the distributor.
const DISTRIBUTOR: u64 = Payload::REACH;

/// So many rounds.
pub(super) fn all(rounds: u32, kernel_at: KernelAt) -> anyhow::Result<String> {
    let kvm = Kvm::open()?;
    let mut counter = Counter::begin(kernel_at)?;
    for _ in 0..rounds {
        for _ in 0..times::SMALL_LIVES {
            let begun = counter.now()?;
            counter.done(Row::Nothing, 1, begun)?;
            small(&kvm, &mut counter)?;
        }
        for life in Large::ALL {
            large(&kvm, &mut counter, life)?;
        }
        cached(&kvm, &mut counter)?;
    }
    Ok(counter.told())
}

/// Memory of a VM, all of it there.
fn memory(bytes: u64, mapping: Mapping) -> anyhow::Result<GuestMemory> {
    let memory = GuestMemory::map(usize::try_from(bytes)?)?;
    let huge_before = huge_kib()?;
    memory.advise(match mapping {
        Mapping::Pages => HugePages::Unwanted,
        Mapping::Blocks => HugePages::Wanted,
    })?;
    for page in (0..memory.size()).step_by(PAGE) {
        memory.write(page, &[0])?;
    }
    if matches!(mapping, Mapping::Blocks) {
        let huge = huge_kib()?.saturating_sub(huge_before) << 10;
        ensure!(huge >= bytes, "of {bytes} bytes, {huge} are in huge pages alone");
    }
    Ok(memory)
}

/// KiB of this process that are in huge pages.
fn huge_kib() -> anyhow::Result<u64> {
    let path = "/proc/self/smaps_rollup";
    let rollup = read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("AnonHugePages:"));
    let number = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok());
    number.with_context(|| format!("{path} does not say what is in huge pages"))
}

/// The guest's code, in the memory that it begins with.
fn install(memory: &GuestMemory) -> anyhow::Result<()> {
    let code: Vec<u8> = program(DISTRIBUTOR).into_iter().flat_map(u32::to_le_bytes).collect();
    let table: Vec<u8> = table().into_iter().flat_map(u64::to_le_bytes).collect();
    memory.write(0, &code)?;
    memory.write(usize::try_from(TABLE - MEMORY)?, &table)?;
    Ok(())
}

fn doorbell(at: u64) -> anyhow::Result<IoEvent> {
    Ok(IoEvent::new(at, DOORBELL_BYTES as u32, None)?)
}

/// A small VM: all that a vCPU does, and what is quick.
fn small(kvm: &Kvm, counter: &mut Counter) -> anyhow::Result<()> {
    let memory = memory(4 * MEMORY_BYTES, Mapping::Pages)?;
    install(&memory)?;
    let (first, later) = (doorbell(DOORBELL)?, doorbell(LATER_DOORBELL)?);

    let begun = counter.now()?;
    let vm = Vm::create(kvm)?;
    counter.done(Row::VmCreated, 1, begun)?;

    let begun = counter.now()?;
    vm.create_irqchip()?;
    counter.done(Row::MachineCreated, 1, begun)?;

    let begun = counter.now()?;
    vm.register_ioeventfd(&first)?;
    counter.done(Row::DeviceFirst, 1, begun)?;

    let begun = counter.now()?;
    vm.set_memory_region(0, MEMORY, &memory, MemoryFlags::default())?;
    counter.done(Row::FirstMemslot, 1, begun)?;

    let begun = counter.now()?;
    let mut vcpu = Obedient::new(&vm, 0)?;
    counter.done(Row::VcpuCreated, 1, begun)?;

    let begun = counter.now()?;
    vm.register_ioeventfd(&later)?;
    counter.done(Row::DeviceLater, 1, begun)?;

    vm.finish_irqchip()?;
    vcpu.run()?;
    let steps = [
        (Row::MmioUser, Order::Ask, 1),
        (Row::FirstFault, Order::Pages, 1),
        (Row::Hvc, Order::Calls, times::TIMES),
        (Row::MmioDoorbell, Order::Rings, times::TIMES),
        (Row::MmioGic, Order::Reads, times::TIMES),
    ];
    for (row, order, times) in steps {
        vcpu.obey(Order::Ask, 0)?;
        let begun = counter.now()?;
        vcpu.obey(order, times)?;
        counter.done(row, times, begun)?;
    }
    let rung = first.take()?;
    ensure!(rung == u64::from(times::TIMES), "the doorbell has rung {rung} times");

    let begun = counter.now()?;
    let lent = vm.destroy(vec![vcpu.into_vcpu()]);
    counter.done(Row::Destroyed, 1, begun)?;
    drop(lent);
    Ok(())
}

/// A VM with a slot of its own for what its guest touches.
fn large(kvm: &Kvm, counter: &mut Counter, large: Large) -> anyhow::Result<()> {
    let code = memory(MEMORY_BYTES, Mapping::Pages)?;
    let region = memory(times::BYTES, large.mapping)?;
    install(&code)?;
    let vm = Vm::create(kvm)?;
    vm.create_irqchip()?;
    vm.set_memory_region(0, MEMORY, &code, MemoryFlags::default())?;
    vm.set_memory_region(1, REGION, &region, MemoryFlags::default())?;
    let mut vcpu = Obedient::new(&vm, 0)?;
    vm.finish_irqchip()?;
    vcpu.run()?;

    if large.is_cached {
        vcpu.obey(Order::Caches, 1)?;
    }
    let (row, order, touches) = large.touches();
    let begun = counter.now()?;
    vcpu.obey(order, touches)?;
    counter.done(row, touches, begun)?;

    let vcpu = vcpu.into_vcpu();
    match large.goes {
        Goes::Deleted => {
            let begun = counter.now()?;
            vm.delete_memory_region(1)?;
            counter.done(large.end(), 1, begun)?;
            vm.destroy(vec![vcpu]);
        }
        Goes::Destroyed => {
            let begun = counter.now()?;
            let lent = vm.destroy(vec![vcpu]);
            counter.done(large.end(), 1, begun)?;
            drop(lent);
        }
    }
    Ok(())
}

/// A VM whose vCPUs turn their caches on.
fn cached(kvm: &Kvm, counter: &mut Counter) -> anyhow::Result<()> {
    let memory = memory(MEMORY_BYTES + times::CACHED_BYTES, Mapping::Blocks)?;
    install(&memory)?;
    let vm = Vm::create(kvm)?;
    vm.create_irqchip()?;
    vm.set_memory_region(0, MEMORY, &memory, MemoryFlags::default())?;
    let vcpus = (0..times::CACHED_VCPUS).map(|number| Obedient::new(&vm, number));
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
    counter.done(Row::CachesOn, 1, begun)?;
    vm.destroy(vcpus.into_iter().map(Obedient::into_vcpu).collect());
    Ok(())
}
