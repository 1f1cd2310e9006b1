//! The life of one VM, the same on every backend.

use std::time::Instant;

use crate::params::Order;

use super::backend::Subject;
use super::shape::Shape;
use super::timed::{Timed, Timings};

/// Lives it.
pub(super) fn live(
    vm: &mut dyn Subject,
    order: Order,
    shape: Shape,
    timings: &mut Timings,
) -> anyhow::Result<()> {
    vm.warm_up(order)?;
    vm.begin();
    let start = Instant::now();
    timings.time(Timed::Create, || vm.create(order))?;
    match order {
        Order::DevicesFirst => {
            devices(vm, shape, timings)?;
            memory(vm, timings)?;
            vcpus(vm, shape, timings)?;
        }
        Order::VcpusFirst => {
            irqchip(vm, timings)?;
            vcpus(vm, shape, timings)?;
            ioeventfds(vm, shape, timings)?;
            memory(vm, timings)?;
        }
        Order::MemoryFirst => {
            memory(vm, timings)?;
            devices(vm, shape, timings)?;
            vcpus(vm, shape, timings)?;
        }
    }
    vm.prepare()?;
    timings.time(Timed::FirstExit, || vm.run_to_first_exit())?;
    timings.since(Timed::Total, start);

    timings.time(Timed::LaterMemslot, || vm.set_memory(1))?;
    timings.time(Timed::Unregister, || vm.unregister(0))?;
    timings.spent(&vm.end());
    busy(vm, shape, timings)?;
    vm.begin();
    timings.time(Timed::Destroy, || vm.destroy())?;
    timings.spent(&vm.end());
    vm.clean_up();
    Ok(())
}

/// The interrupt controller, and what guests are notified by.
fn devices(vm: &mut dyn Subject, shape: Shape, timings: &mut Timings) -> anyhow::Result<()> {
    irqchip(vm, timings)?;
    ioeventfds(vm, shape, timings)
}

fn irqchip(vm: &mut dyn Subject, timings: &mut Timings) -> anyhow::Result<()> {
    timings.time(Timed::Irqchip, || vm.create_irqchip())
}

fn ioeventfds(vm: &mut dyn Subject, shape: Shape, timings: &mut Timings) -> anyhow::Result<()> {
    (0..shape.devices).try_for_each(|index| timings.time(Timed::Register, || vm.register(index)))
}

fn memory(vm: &mut dyn Subject, timings: &mut Timings) -> anyhow::Result<()> {
    timings.time(Timed::FirstMemslot, || vm.set_memory(0))
}

fn vcpus(vm: &mut dyn Subject, shape: Shape, timings: &mut Timings) -> anyhow::Result<()> {
    timings.time(Timed::FirstVcpu, || vm.create_vcpu(0))?;
    (1..shape.vcpus).try_for_each(|id| vm.create_vcpu(id))
}

/// What changes while the vCPUs run. Ioeventfd 0 was unregistered before, and comes back.
fn busy(vm: &mut dyn Subject, shape: Shape, timings: &mut Timings) -> anyhow::Result<()> {
    vm.start_all(shape)?;
    vm.begin();
    let changed = change(vm, shape, timings);
    timings.spent(&vm.end());
    // Also when something has failed, or whoever waits for their threads waits for ever.
    vm.stop_all()?;
    changed
}

fn change(vm: &mut dyn Subject, shape: Shape, timings: &mut Timings) -> anyhow::Result<()> {
    timings.time(Timed::BusyRegister, || vm.register(0))?;
    timings.time(Timed::BusyMemslot, || vm.set_memory(2))?;
    timings.time(Timed::BusyVcpu, || vm.create_vcpu(shape.vcpus))?;
    timings.time(Timed::BusyRegister, || vm.register(shape.devices))?;
    timings.time(Timed::BusyUnregister, || vm.unregister(0))
}
