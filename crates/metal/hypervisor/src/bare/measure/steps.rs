//! The lifecycles. None is inlined: the stack of the thread has not room for all of them at once.

use alloc::vec::Vec;

use mayfly_hypervisor::plan::BLOCK;
use mayfly_lifecycle_steps::course::{self, Counter as _, Side, Vcpu as _};
use mayfly_lifecycle_steps::guest::{
    DOORBELL, LATER_DOORBELL, MEMORY, MEMORY_BYTES, Order, REGION,
};
use mayfly_lifecycle_steps::large::{Goes, Large, Mapping};
use mayfly_lifecycle_steps::{Row, times};
use mayfly_vm::{Bus, Device as _};

use super::counted::{Counter, settle};
use super::forked::forks;
use super::guest::{Obedient, seat};
use super::interrupts::interrupted;
use super::logged::logged;
use super::parts::{Outcome, create, doorbell, doorbell_range, machine, make, memory, slot, vcpu};
use crate::bare::devices::arch::{MEMORY as FIRST, registers};
use crate::bare::processor::frames;
use crate::bare::threads;
use crate::bare::vm::{Host, TableFormat};

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

    fn logged(&mut self, mapping: Mapping) -> Outcome<()> {
        all_back(|| logged(self.host, self.counter, mapping))
    }

    fn forks(&mut self) -> Outcome<()> {
        all_back(|| forks(self.host, self.counter))
    }

    fn interrupted(&mut self) -> Outcome<()> {
        all_back(|| interrupted(self.host, self.counter))
    }

    fn at_once(&mut self) -> Outcome<()> {
        all_back(|| at_once(self.host, self.counter))
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

/// A small VM: everything that a vCPU does, and the short steps.
#[inline(never)]
fn small<F: TableFormat>(host: &Host<F>, counter: &mut Counter) -> Outcome<()> {
    let bytes = 4 * MEMORY_BYTES;
    let memory = memory(host, bytes, Mapping::Pages)?;

    let vm = counter.step(Row::VmCreated, || create(host, &memory))?;
    let run = counter.step(Row::MachineCreated, || machine(host, &memory, 1))?;
    counter.step(Row::DevicesTouched, || {
        run.devices.show(&memory, registers(bytes) - FIRST).map_err(|_| "no room for registers")?;
        for (.., device) in run.devices.all() {
            device.read(0, 0, &mut [0; 4]);
        }
        run.uart.read(0, 0, &mut [0; 4]);
        Ok(())
    })?;
    counter.step(Row::DeviceFirst, || doorbell(&vm, DOORBELL))?;
    counter.step(Row::FirstMemslot, || slot(&vm, 0, MEMORY, bytes))?;

    let begun = counter.now()?;
    let seat = seat(&run, 0)?;
    let vcpu = vcpu(&vm, 0)?;
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
#[inline(never)]
fn large<F: TableFormat>(host: &Host<F>, counter: &mut Counter, large: Large) -> Outcome<()> {
    let bytes = MEMORY_BYTES + times::BYTES;
    let memory = memory(host, bytes, large.mapping)?;
    let (vm, run) = (create(host, &memory)?, machine(host, &memory, 1)?);
    slot(&vm, 0, MEMORY, MEMORY_BYTES)?;
    slot(&vm, 1, REGION, times::BYTES)?;
    let seat = seat(&run, 0)?;
    let vcpu = vcpu(&vm, 0)?;
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

/// VMs in which something follows at once after a device was registered.
#[inline(never)]
fn at_once<F: TableFormat>(host: &Host<F>, counter: &mut Counter) -> Outcome<()> {
    let memory = memory(host, MEMORY_BYTES, Mapping::Pages)?;
    let (vm, run) = (create(host, &memory)?, machine(host, &memory, 1)?);
    settle();
    doorbell(&vm, DOORBELL)?;
    counter.step(Row::MemslotAtOnce, || slot(&vm, 0, MEMORY, MEMORY_BYTES))?;
    doorbell(&vm, LATER_DOORBELL)?;
    let range = doorbell_range(LATER_DOORBELL);
    counter.step(Row::UnregisteredAtOnce, || {
        vm.unregister_device(Bus::Mmio, range).map(drop).map_err(|_| "a device has gone")
    })?;
    doorbell(&vm, LATER_DOORBELL)?;
    counter.step(Row::ClosedAtOnce, || {
        vm.destroy();
        drop(run);
        Ok(())
    })
}

/// A VM whose vCPUs turn their caches on.
#[inline(never)]
fn cached<F: TableFormat>(host: &Host<F>, counter: &mut Counter) -> Outcome<()> {
    let bytes = MEMORY_BYTES + times::CACHED_BYTES;
    let memory = memory(host, bytes, Mapping::Blocks)?;
    let (vm, run) = (create(host, &memory)?, machine(host, &memory, times::CACHED_VCPUS)?);
    slot(&vm, 0, MEMORY, bytes)?;
    let seats = (0..times::CACHED_VCPUS).map(|number| {
        // Threads of vCPUs make a seat each. Here one thread makes all of them.
        threads::preemption_point();
        seat(&run, number)
    });
    let seats = seats.collect::<Outcome<Vec<_>>>()?;
    let vcpu = |(number, seat)| {
        let vcpu = vcpu(&vm, number)?;
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
