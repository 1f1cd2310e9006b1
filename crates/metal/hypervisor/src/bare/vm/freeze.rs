//! How a run is frozen: what it leaves is kept, or it goes on.
//!
//! Its threads have ended. Each vCPU has left what it is, and nothing else of the run is given back before all that the
//! forks need is kept. So where something cannot be kept, other threads go on with the same vCPUs, devices and memory:
//! to the guest it is a stop. What can fail is done before what cannot be taken back: that the memory is guaranteed
//! comes last.

use alloc::sync::Arc;
use alloc::vec::Vec;

use mayfly_hypervisor::ending::End;
use mayfly_hypervisor::needs::Needs;

use super::arch::{Model, Stopped, save};
use super::kept::{NotKept, NotLoaded};
use super::machine::Machine;
use super::run::Run;
use super::template::Template;
use crate::bare::devices::disk::Medium;
use crate::bare::processor::heap::Guaranteed;
use crate::bare::threads;
use crate::bare::threads::console::say;
use crate::bare::world::memory::GuestMemory;

/// What is left of a run whose threads have ended, with the memory of its guest.
///
/// # Errors
///
/// Why it cannot be kept: then the run has what it had.
#[inline(never)]
pub(super) fn keep(
    machine: &Machine,
    run: &Run,
    memory: &Arc<GuestMemory>,
    virtual_count: u64,
) -> Result<Template, &'static str> {
    let heap = Guaranteed::try_new(Needs::frozen(&machine.plan) as usize);
    let _heap = heap.map_err(|_| NO_MEMORY)?;
    let mut vcpus = Vec::new();
    vcpus.try_reserve_exact(run.power.len()).map_err(|_| NO_MEMORY)?;
    for number in 0..run.power.len() {
        let Some(vcpu) = left(run, number) else { break };
        vcpus.push(vcpu);
        threads::preemption_point();
    }
    let kept = if vcpus.len() == run.power.len() {
        try_keep(machine, run, memory, &vcpus, virtual_count)
    } else {
        Err(NOT_AT_REST)
    };
    if kept.is_err() {
        put_back(run, vcpus);
    }
    kept
}

/// Has vCPUs be those that the run has left again.
#[cold]
#[inline(never)]
fn put_back(run: &Run, vcpus: Vec<Arc<Stopped>>) {
    for (number, vcpu) in vcpus.into_iter().enumerate() {
        run.stopped.lock()[number] = Some(vcpu);
        threads::preemption_point();
    }
}

/// Takes what vCPU `number` has left, and where it begins if it was turned on and has not begun: no vCPU turns it on any more.
pub(super) fn left(run: &Run, number: usize) -> Option<Arc<Stopped>> {
    let mut vcpu = take(run, number)?;
    // Nobody else has it yet.
    let its = Arc::get_mut(&mut vcpu)?;
    its.start = if its.is_on { None } else { run.start_of(number) };
    Some(vcpu)
}

/// Takes what vCPU `number` has left.
fn take(run: &Run, number: usize) -> Option<Arc<Stopped>> {
    run.stopped.lock()[number].take()
}

const NO_MEMORY: &str = "there is no memory for what it is";
const NOT_AT_REST: &str = "a part of it is not at rest";
const NOT_LOADED: &str = "nothing could go on as it was";

/// Not inlined, as what it calls: each has some KiB on the stack for a moment.
#[inline(never)]
fn try_keep(
    machine: &Machine,
    run: &Run,
    memory: &Arc<GuestMemory>,
    vcpus: &[Arc<Stopped>],
    virtual_count: u64,
) -> Result<Template, &'static str> {
    let console = machine.uart.stop();
    let state = save(&machine.plan, &run.chipset, &run.devices, &console, vcpus, virtual_count);
    let state = state.map_err(|why| match why {
        NotKept::OutOfMemory => NO_MEMORY,
        NotKept::NotStopped => NOT_AT_REST,
    })?;
    let caches = vcpus.iter().map(|vcpu| vcpu.caches);
    let disk = machine.disk().and_then(Medium::frames);
    let model = Model::load(&machine.plan, &state, caches, disk).map_err(|why| match why {
        NotLoaded::OutOfMemory => NO_MEMORY,
        NotLoaded::Bytes(error) => {
            say!("mayfly: {}: {error}", machine.plan.name);
            NOT_LOADED
        }
    })?;
    let template =
        Template::try_new((Arc::clone(memory), memory.heap_bytes()), machine.disk_memory(), model);
    let template = template.ok_or(NO_MEMORY)?;
    if memory.world().share().is_none_or(|share| share.keep()) {
        Ok(template)
    } else {
        Err("what it has is guaranteed to others")
    }
}

/// Has a run go on that was not kept. Returns whether it does.
pub(super) fn go_on(run: &Run) -> bool {
    let mut vcpus = Vec::new();
    if vcpus.try_reserve_exact(run.power.len()).is_err()
        || run.stopped.lock().iter().any(Option::is_none)
    {
        run.end(End::Failed);
        return false;
    }
    for number in 0..run.power.len() {
        vcpus.push(take(run, number));
        threads::preemption_point();
    }
    run.uart.go_on(run.devices.plug());
    run.devices.go_on();
    *run.resumed.lock() = vcpus;
    run.goes_on()
}
