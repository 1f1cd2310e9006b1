//! The thread of a vCPU.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use mayfly_hypervisor::ending::End;
use mayfly_vm::platform::Platform;
use mayfly_vm::{Error, Exit, HostFault, Vcpu, stage2};

use super::arch::{Processor, Seat, Stopped, answer, goes_off, no_port, processor, stop};
use super::format::{Kinds, TableFormat};
use super::run::{OFF, Run};
use super::stop::Stop;
use crate::bare::threads;
use crate::bare::threads::console::say;
use crate::bare::threads::kick::FAIL;
use crate::bare::world::share::pause;

/// What the thread of a vCPU does, in one run. The vCPU is off, or goes on as another one was.
pub(super) fn main<F: TableFormat>(run: &Arc<Run>, vcpu: &mut Vcpu<Kinds<F>>) {
    let number = vcpu.id() as usize;
    let Some(seat) = Seat::try_new(run, number) else { return };
    run.places.take(number, vcpu.kicker());
    // SAFETY: the seat lasts until this is taken back, below; putting it neither waits nor switches.
    unsafe { threads::on_leave(Some((put, core::ptr::from_ref(&seat).cast_mut().cast()))) };

    let mut cpu = processor(run, &seat, number);
    let mut has_run = false;
    let mut is_on = false;
    if let Some(before) = run.take_resumed(number) {
        cpu.go_on(&before.registers);
        seat.resume(before.interface.clone());
        let caches = before.caches;
        drop(before);
        match vcpu.start_with_caches(caches) {
            Ok(()) => {
                run.counts.enters();
                // A run that ended before this vCPU had its place has not kicked it.
                let goes_on = run.ending().is_some() || serve(run, vcpu, &mut cpu, &seat);
                (has_run, is_on) = (true, goes_on);
            }
            Err(error) => {
                say!("mayfly: {}: vCPU {number} does not start: {error}", run.uart.name());
                run.end(End::Failed);
            }
        }
    } else {
        // Of a fork that has gone back, it is as the life before has left it.
        vcpu.reset_caches();
    }
    while run.ending().is_none() {
        let power = &run.power[number];
        if power.word.load(Ordering::Acquire) == OFF {
            run.world.wait(&power.word, OFF);
            continue;
        }
        if run.ending().is_some() {
            break;
        }
        power.word.store(OFF, Ordering::Relaxed);
        if core::mem::replace(&mut has_run, true) {
            vcpu.reset_caches();
            seat.reset();
        }
        cpu.start(power.entry.load(Ordering::Relaxed), power.context.load(Ordering::Relaxed));
        run.chipset.started(number);
        is_on = serve(run, vcpu, &mut cpu, &seat);
    }

    seat.put();
    if run.ending() == Some(End::Frozen) {
        leave_behind(run, is_on, vcpu, &cpu, &seat);
    }
    // SAFETY: nothing is left to be put.
    unsafe { threads::on_leave(None) };
    run.places.leave(number);
    // Before the vCPU is freed.
    threads::preemption_point();
}

/// Leaves what a vCPU is that has left its guest for good, and whose registers are put. Not inlined: they have some KiB.
#[inline(never)]
fn leave_behind<F: TableFormat>(
    run: &Run,
    is_on: bool,
    vcpu: &Vcpu<Kinds<F>>,
    cpu: &Processor<'_, F>,
    seat: &Seat,
) {
    let stop = || {
        let (interface, caches) = (seat.take_interface()?, vcpu.guest_caches());
        // Where it starts is looked at when no vCPU turns another one on any more.
        let registers = cpu.at_rest()?;
        Some(Arc::new(Stopped { is_on, start: None, interface, registers, caches }))
    };
    let stopped = stop();
    run.stopped.lock()[vcpu.id() as usize] = stopped;
}

/// Saves the registers of a vCPU that are in the processor.
///
/// # Safety
///
/// `seat` is a [`Seat`], of the thread that calls this.
pub(crate) unsafe fn put(seat: *mut ()) {
    // SAFETY: the caller's promise.
    unsafe { &*seat.cast::<Seat>() }.put();
}

/// Runs a vCPU until it is off, or the run ends. Returns whether it has been ended between two instructions of its guest, so
/// that another vCPU can go on as it is.
fn serve<F: TableFormat>(
    run: &Run,
    vcpu: &mut Vcpu<Kinds<F>>,
    cpu: &mut Processor<'_, F>,
    seat: &Seat,
) -> bool {
    loop {
        match vcpu.run(cpu) {
            Exit::Custom(number) => match stop(number) {
                Some(Stop::Wait) => wait(run, vcpu, seat, None),
                Some(Stop::Off) => {
                    goes_off(run, vcpu.id() as usize, number, cpu);
                    seat.put();
                    run.chipset.stopped(vcpu.id() as usize);
                    return false;
                }
                Some(Stop::SystemOff) => {
                    run.end(End::Off);
                    return false;
                }
                Some(Stop::SystemReset) => {
                    run.end(End::Reset);
                    return false;
                }
                None => {}
            },
            Exit::Mmio(access) => {
                if !answer(run, vcpu.id() as usize, &access, cpu, seat) {
                    cpu.inject_abort(&access);
                }
            }
            Exit::Unbacked(access) => cpu.inject_abort(&access),
            Exit::Failed(_, Error::Host(HostFault::OutOfMemory)) => {
                // Out of the core, and of the guest, so that another VM can end meanwhile.
                if !run.wait_for_frame() {
                    run.end(End::OutOfMemory);
                    return false;
                }
            }
            // Tables that are out of use are still to be freed: then there is room for those that are in use.
            Exit::Failed(_, Error::Stage2(stage2::Error::TableLimit { .. }))
                if !run.ends_for_good() =>
            {
                pause();
            }
            Exit::Failed(access, error) => {
                let (name, vcpu, gpa) = (run.uart.name(), vcpu.id(), access.gpa);
                say!("mayfly: {name}: vCPU {vcpu} failed at {gpa}: {error}");
                run.end(End::Failed);
                return false;
            }
            Exit::Kicked if run.ending().is_some() => return true,
            // The vCPU was to look at its interrupts. It may be asked so often that it enters no guest, where interrupts of
            // others are served.
            Exit::Kicked => threads::preemption_point(),
            Exit::Asked(bits) => {
                if bits & FAIL != 0 {
                    cpu.fail();
                }
            }
            Exit::Port(_) => no_port(cpu),
            // It has found nothing that it asks for.
            Exit::Caches(_) | Exit::Halt => {}
        }
    }
}

/// Sleeps until there is an interrupt for the vCPU, something is asked of it, or its thread has slept until `latest`, in
/// ticks.
pub(crate) fn wait<F: TableFormat>(
    run: &Run,
    vcpu: &Vcpu<Kinds<F>>,
    seat: &Seat,
    latest: Option<u64>,
) {
    seat.put();
    let due = [seat.next_timer(), latest].into_iter().flatten().min();
    if seat.is_pending() {
        return;
    }
    threads::with_alarm(due, vcpu.kicker(), || vcpu.requests().wait(&*run.world));
}
