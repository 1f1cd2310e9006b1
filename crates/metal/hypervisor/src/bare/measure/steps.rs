//! The lifecycles.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use mayfly_hypervisor::plan::Plan;
use mayfly_hypervisor::turns::Share;
use mayfly_lifecycle_steps::course::{self, Counter as _, Side, Vcpu as _};
use mayfly_lifecycle_steps::guest::{
    DOORBELL, DOORBELL_BYTES, LATER_DOORBELL, MEMORY, MEMORY_BYTES, Order, REGION,
};
use mayfly_lifecycle_steps::large::{Goes, Large, Mapping};
use mayfly_lifecycle_steps::{Row, times};
use mayfly_vm::iobus::IoRange;
use mayfly_vm::memslot::{Flags, Gpa, Hva, Region, SlotId};
use mayfly_vm::{Bus, Device, Vm};

use super::arch::{BLOCK, DISTRIBUTOR, REDISTRIBUTORS};
use super::counted::{Counter, settle};
use super::guest::{Obedient, seat};
use super::interrupts::interrupted;
use crate::bare::devices::uart::Uart;
use crate::bare::processor::frames;
use crate::bare::threads;
use crate::bare::vm::{Host, Kinds, Run, TableFormat};
use crate::bare::world::Worlds;
use crate::bare::world::memory::GuestMemory;

pub(super) type Outcome<T> = Result<T, &'static str>;

const NO_MEMORY: &str = "there is too little memory for a guest";

/// Mayfly's side.
pub(crate) struct Mayfly<'a, F: TableFormat> {
    pub(crate) host: &'a Host<F>,
    pub(crate) counter: &'a mut Counter,
}

impl<F: TableFormat> Side for Mayfly<'_, F> {
    type Error = &'static str;

    fn nothing(&mut self) -> Outcome<()> {
        self.counter.step(Row::Nothing, || Ok(()))
    }

    fn memory(&mut self, mapping: Mapping) -> Outcome<()> {
        all_back(|| {
            let memory =
                self.counter.step(mapping.made(), || make(self.host, times::BYTES, mapping))?;
            self.counter.step(mapping.freed(), || {
                drop(memory);
                Ok(())
            })
        })
    }

    fn small(&mut self) -> Outcome<()> {
        all_back(|| small(self.host, self.counter))
    }

    fn large(&mut self, lifecycle: Large) -> Outcome<()> {
        all_back(|| large(self.host, self.counter, lifecycle))
    }

    fn interrupted(&mut self) -> Outcome<()> {
        all_back(|| interrupted(self.host, self.counter))
    }

    fn cached(&mut self) -> Outcome<()> {
        all_back(|| cached(self.host, self.counter))
    }
}

/// Checks that a lifecycle frees all of its frames.
fn all_back(lifecycle: impl FnOnce() -> Outcome<()>) -> Outcome<()> {
    let before = frames::count_free();
    lifecycle()?;
    settle();
    if frames::count_free() == before {
        Ok(())
    } else {
        Err("a lifecycle has not freed all of its frames")
    }
}

/// A doorbell: it wakes the threads that sleep for it.
#[derive(Default)]
struct Doorbell(AtomicU32);

impl Device for Doorbell {
    fn read(&self, _vcpu: u32, _offset: u64, data: &mut [u8]) {
        data.fill(0);
    }

    fn write(&self, _vcpu: u32, _offset: u64, _data: &[u8]) {
        self.0.fetch_add(1, Ordering::Release);
        threads::wake(&self.0);
    }
}

/// The memory of a VM, all of it with frames.
fn make<F: TableFormat>(host: &Host<F>, bytes: u64, mapping: Mapping) -> Outcome<GuestMemory> {
    let memory = GuestMemory::try_new(host.world.clone(), bytes).map_err(|_| NO_MEMORY)?;
    let memory = match mapping {
        Mapping::Pages => memory.by_frames(),
        Mapping::Blocks => memory,
    };
    for touched in mapping.touches(bytes) {
        memory.write(touched, &[0]).map_err(|_| NO_MEMORY)?;
    }
    Ok(memory)
}

/// The same, with the guest's code in it.
pub(super) fn memory<F: TableFormat>(
    host: &Host<F>,
    bytes: u64,
    mapping: Mapping,
) -> Outcome<Arc<GuestMemory>> {
    let memory = make(host, bytes, mapping)?;
    course::install(DISTRIBUTOR, REDISTRIBUTORS, |at, bytes| memory.write(at, bytes))
        .map_err(|_| NO_MEMORY)?;
    Ok(Arc::new(memory))
}

/// The machine of a VM, without the core's part.
pub(super) fn machine<F: TableFormat>(host: &Host<F>, bytes: u64, vcpus: u32) -> Outcome<Run> {
    let plan = Plan {
        name: "measured".to_string(),
        vcpus,
        memory: bytes,
        overcommit: false,
        reserve: None,
        disk: 0,
        weight: Share::WEIGHT,
        cap: None,
        starts: false,
        kernel: 0..0,
        ramdisks: Vec::new(),
        arguments: String::new(),
    };
    let uart = Arc::new(Uart::new(&plan.name));
    let worlds = Worlds { run: host.world.clone(), memory: host.world.clone() };
    Run::try_new(&worlds, &plan, &uart, &Arc::default(), None)
        .map_err(|_| "there is no memory for a VM")
}

pub(super) fn create<F: TableFormat>(
    host: &Host<F>,
    memory: &Arc<GuestMemory>,
) -> Outcome<Vm<Kinds<F>>> {
    Vm::create(host.config(&host.world, memory, usize::MAX))
        .map_err(|_| "there is no memory for a VM")
}

pub(super) fn slot<F: TableFormat>(
    vm: &Vm<Kinds<F>>,
    number: u32,
    gpa: u64,
    size: u64,
) -> Outcome<()> {
    let region = Region {
        slot: SlotId::main(number as u16),
        flags: Flags::empty(),
        gpa: Gpa::new(gpa),
        size,
        backing: Hva::new(gpa.saturating_sub(MEMORY)),
    };
    vm.set_memory_region(&region).map_err(|_| "a slot cannot be set")
}

fn doorbell<F: TableFormat>(vm: &Vm<Kinds<F>>, at: u64) -> Outcome<()> {
    let range = IoRange { start: at, len: DOORBELL_BYTES };
    let device: Arc<dyn Device> = Arc::<Doorbell>::default();
    vm.register_device(Bus::Mmio, range, device).map_err(|_| "a device cannot be registered")
}

/// A small VM: everything that a vCPU does, and the short steps.
fn small<F: TableFormat>(host: &Host<F>, counter: &mut Counter) -> Outcome<()> {
    let bytes = 4 * MEMORY_BYTES;
    let memory = memory(host, bytes, Mapping::Pages)?;

    let vm = counter.step(Row::VmCreated, || create(host, &memory))?;
    let run = counter.step(Row::MachineCreated, || machine(host, bytes, 1))?;
    counter.step(Row::DevicesTouched, || {
        for (_, device) in run.devices.all() {
            device.read(0, 0, &mut [0; 4]);
        }
        run.uart.read(0, 0, &mut [0; 4]);
        Ok(())
    })?;
    counter.step(Row::DeviceFirst, || doorbell(&vm, DOORBELL))?;
    counter.step(Row::FirstMemslot, || slot(&vm, 0, MEMORY, bytes))?;

    let begun = counter.now()?;
    let seat = seat(&run, 0)?;
    let vcpu = vm.create_vcpu(0).map_err(|_| "there is no memory for a vCPU")?;
    let mut vcpu = Obedient::new(&run, &seat, vcpu);
    counter.done(Row::VcpuCreated, 1, &begun)?;

    counter.step(Row::DeviceLater, || doorbell(&vm, LATER_DOORBELL))?;

    vcpu.run()?;
    course::small(&mut vcpu, counter)?;

    let begun = counter.now()?;
    drop(vcpu);
    drop(seat);
    vm.destroy();
    drop(run);
    counter.done(Row::Destroyed, 1, &begun)
}

/// A VM with a slot of its own for the pages that its guest writes to.
fn large<F: TableFormat>(host: &Host<F>, counter: &mut Counter, large: Large) -> Outcome<()> {
    let bytes = MEMORY_BYTES + times::BYTES;
    let memory = memory(host, bytes, large.mapping)?;
    let (vm, run) = (create(host, &memory)?, machine(host, bytes, 1)?);
    slot(&vm, 0, MEMORY, MEMORY_BYTES)?;
    slot(&vm, 1, REGION, times::BYTES)?;
    let seat = seat(&run, 0)?;
    let vcpu = vm.create_vcpu(0).map_err(|_| "there is no memory for a vCPU")?;
    let mut vcpu = Obedient::new(&run, &seat, vcpu);
    vcpu.run()?;

    course::touches(large, &mut vcpu, counter)?;

    match large.goes {
        Goes::Deleted => {
            counter.step(large.end(), || slot(&vm, 1, REGION, 0))?;
            drop(vcpu);
            vm.destroy();
        }
        Goes::Destroyed => {
            let begun = counter.now()?;
            drop(vcpu);
            drop(seat);
            vm.destroy();
            drop(run);
            counter.done(large.end(), 1, &begun)?;
        }
    }
    Ok(())
}

/// A VM whose vCPUs turn their caches on.
fn cached<F: TableFormat>(host: &Host<F>, counter: &mut Counter) -> Outcome<()> {
    let bytes = MEMORY_BYTES + times::CACHED_BYTES;
    let memory = memory(host, bytes, Mapping::Blocks)?;
    let (vm, run) = (create(host, &memory)?, machine(host, bytes, times::CACHED_VCPUS)?);
    slot(&vm, 0, MEMORY, bytes)?;
    let seats = (0..times::CACHED_VCPUS).map(|number| {
        // Threads of vCPUs make a seat each. Here one thread makes all of them.
        threads::preemption_point();
        seat(&run, number)
    });
    let seats = seats.collect::<Outcome<Vec<_>>>()?;
    let vcpu = |(number, seat)| {
        let vcpu = vm.create_vcpu(number).map_err(|_| "there is no memory for a vCPU")?;
        let mut vcpu = Obedient::new(&run, seat, vcpu);
        vcpu.run()?;
        vcpu.rest();
        Ok(vcpu)
    };
    let mut vcpus = (0..).zip(&seats).map(vcpu).collect::<Outcome<Vec<_>>>()?;
    vcpus[0].obey(Order::Blocks, (times::CACHED_BYTES / BLOCK) as u32)?;
    vcpus[0].rest();

    let begun = counter.now()?;
    for vcpu in &mut vcpus {
        vcpu.obey(Order::Caches, 1)?;
        vcpu.rest();
    }
    counter.done(Row::CachesOn, 1, &begun)?;
    drop(vcpus);
    vm.destroy();
    Ok(())
}
