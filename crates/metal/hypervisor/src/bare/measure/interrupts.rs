//! A VM of two vCPUs that take interrupts. The first runs on the monitor's thread, and is measured. The second answers it
//! on a thread of its own, on the same CPU.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use mayfly_lifecycle_steps::course;
use mayfly_lifecycle_steps::guest::{MEMORY, MEMORY_BYTES};
use mayfly_lifecycle_steps::large::Mapping;
use mayfly_vm::Vcpu;

use super::counted::Counter;
use super::guest::{Obedient, seat};
use super::parts::{Outcome, create, machine, memory, slot, vcpu};
use crate::bare::threads::{self, Name};
use crate::bare::vm::{Host, Kinds, Run, TableFormat};

/// What the thread of the second vCPU has come to.
const AT_WORK: u32 = 0;
const DONE: u32 = 1;
const FAILED: u32 = 2;

#[inline(never)]
pub(super) fn interrupted<F: TableFormat>(host: &Host<F>, counter: &mut Counter) -> Outcome<()> {
    let memory = memory(host, MEMORY_BYTES, Mapping::Pages)?;
    let (vm, run) = (create(host, &memory)?, Arc::new(machine(host, &memory, 2)?));
    slot(&vm, 0, MEMORY, MEMORY_BYTES)?;
    let seat = seat(&run, 0)?;
    let first = vcpu(&vm, 0)?;
    let second = vcpu(&vm, 1)?;

    let partner = Partner::start(&run, second)?;
    let mut first = Obedient::new(&run, &seat, first);
    let measured = first.run().and_then(|()| course::interrupts(&mut first, counter));
    // Without an interrupt the second vCPU gives up after a second.
    let answered = partner.join();
    drop(first);
    drop(seat);
    vm.destroy();
    measured.and(answered)
}

/// The thread of the second vCPU.
struct Partner(Arc<AtomicU32>);

impl Partner {
    fn start<F: TableFormat>(run: &Arc<Run>, vcpu: Vcpu<Kinds<F>>) -> Outcome<Self> {
        let partner = Self(Arc::new(AtomicU32::new(AT_WORK)));
        let (state, run) = (Arc::clone(&partner.0), Arc::clone(run));
        let work = move || {
            let came_to = if answers(&run, vcpu).is_ok() { DONE } else { FAILED };
            drop(run);
            state.store(came_to, Ordering::Release);
            threads::wake(&state);
        };
        threads::spawn(Name::new("the second vCPU"), work)
            .map_err(|_| "there is no memory for a thread")?;
        Ok(partner)
    }

    fn join(self) -> Outcome<()> {
        loop {
            match self.0.load(Ordering::Acquire) {
                AT_WORK => threads::wait(&self.0, AT_WORK, u64::MAX),
                DONE => return Ok(()),
                _ => return Err("the second vCPU has not answered"),
            }
        }
    }
}

fn answers<F: TableFormat>(run: &Run, vcpu: Vcpu<Kinds<F>>) -> Outcome<()> {
    let seat = seat(run, 1)?;
    let mut vcpu = Obedient::new(run, &seat, vcpu);
    vcpu.run()?;
    course::answer_interrupts(&mut vcpu)
}
