//! The lifecycle of one VM, the same on every backend.

use std::time::Instant;

use crate::params::Order;

use super::backend::Subject;
use super::shape::Shape;
use super::timed::{Timed, Timings};

/// Lives it. `phase` takes a time less than a tick, any as likely as any other.
pub(super) fn live(
    vm: &mut dyn Subject,
    order: Order,
    shape: Shape,
    timings: &mut Timings,
    phase: &mut dyn FnMut(),
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
    timings.starts.note("changes while vCPUs run", vm.start()?);
    busy(vm, shape, timings, phase)?;
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
    timings.time(Timed::FirstRegister, || vm.register(0))?;
    (1..shape.devices).try_for_each(|index| timings.time(Timed::Register, || vm.register(index)))
}

fn memory(vm: &mut dyn Subject, timings: &mut Timings) -> anyhow::Result<()> {
    timings.time(Timed::FirstMemslot, || vm.set_memory(0))
}

fn vcpus(vm: &mut dyn Subject, shape: Shape, timings: &mut Timings) -> anyhow::Result<()> {
    timings.time(Timed::FirstVcpu, || vm.create_vcpu(0))?;
    (1..shape.vcpus).try_for_each(|id| vm.create_vcpu(id))
}

/// What changes while the vCPUs run.
fn busy(
    vm: &mut dyn Subject,
    shape: Shape,
    timings: &mut Timings,
    phase: &mut dyn FnMut(),
) -> anyhow::Result<()> {
    vm.start_all(shape)?;
    let changed = change(vm, shape, timings, phase);
    // Also after a failure: otherwise a thread that waits for their threads would wait for ever.
    vm.stop_all()?;
    changed
}

/// Ioeventfd 0 was unregistered before, and comes back. A wait ends with a tick: without a phase before each call, all but
/// the first would begin at one.
fn change(
    vm: &mut dyn Subject,
    shape: Shape,
    timings: &mut Timings,
    phase: &mut dyn FnMut(),
) -> anyhow::Result<()> {
    let mut at_random = |vm: &mut dyn Subject, calls: &[(Timed, Call<'_>)]| {
        phase();
        vm.begin();
        let done = calls.iter().try_for_each(|(what, call)| timings.time(*what, || call(vm)));
        timings.spent(&vm.end());
        done
    };
    let register = |index| move |vm: &mut dyn Subject| vm.register(index);
    at_random(vm, &[(Timed::BusyRegister, &register(0))])?;
    at_random(vm, &[(Timed::BusyMemslot, &|vm| vm.set_memory(2))])?;
    if vm.creates_vcpus_late() {
        at_random(vm, &[(Timed::BusyVcpu, &|vm| vm.create_vcpu(shape.vcpus))])?;
    }
    at_random(vm, &[(Timed::BusyRegister, &register(shape.devices))])?;
    at_random(vm, &[(Timed::BusyUnregister, &|vm| vm.unregister(0))])?;
    let back_to_back: [(Timed, Call<'_>); 2] =
        [(Timed::BusyRegister, &register(0)), (Timed::BackToBackMemslot, &|vm| vm.set_memory(3))];
    at_random(vm, &back_to_back)?;
    let back_to_back: [(Timed, Call<'_>); 2] = [
        (Timed::BusyRegister, &register(shape.devices + 1)),
        (Timed::BackToBackUnregister, &|vm| vm.unregister(0)),
    ];
    at_random(vm, &back_to_back)
}

/// A call on a VM.
type Call<'a> = &'a dyn Fn(&mut dyn Subject) -> anyhow::Result<()>;
