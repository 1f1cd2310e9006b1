//! A vCPU's thread.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use mayfly_arm64::context::Resident;
use mayfly_arm64::guest::GuestCpu;
use mayfly_arm64::machine::{Machine, Next, Reason, WAITS};
use mayfly_arm64::switch::Registers;
use mayfly_arm64::sysreg::{self, SysReg};
use mayfly_arm64::{gic, timer};
use mayfly_devices::psci::{Outcome, Refusal};
use mayfly_devices::smccc::{self, Workarounds};
use mayfly_hypervisor::layout::{
    DISTRIBUTOR, DISTRIBUTOR_BYTES, MEMORY, REDISTRIBUTOR_BYTES, REDISTRIBUTORS,
};
use mayfly_vgic::{Frame, Read, SgiRegister, affinity};
use mayfly_vm::platform::Platform;
use mayfly_vm::platform::address::Pfn;
use mayfly_vm::platform::tlb::Vmid;
use mayfly_vm::{Access, Exit, Guest, HostFault, Vcpu};

use super::console::say;
use super::life::{End, Life, OFF};
use super::seat::{Seat, is_maintenance};
use super::vm::Kinds;
use super::{cpus, masked, threads, trace, world};

/// Numbers of [`Exit::Custom`], beside [`WAITS`].
const CPU_OFF: u64 = 1;
const SYSTEM_OFF: u64 = 2;
const SYSTEM_RESET: u64 = 3;

/// What a vCPU's processor asks.
pub(super) struct Board<'a> {
    pub(super) life: &'a Life,
    pub(super) seat: &'a Seat,
    pub(super) vcpu: usize,
    /// A trace is kept, since before the VM was there.
    pub(super) is_traced: bool,
}

impl Machine for Board<'_> {
    fn call(&mut self, registers: &mut Registers) -> Next {
        let arguments = [registers.x[0], registers.x[1], registers.x[2], registers.x[3]];
        let outcome = smccc::call(&self.life.psci, Workarounds::default(), self.vcpu, &arguments);
        let (answer, next) = match outcome {
            Outcome::Return(value) => (value, Next::Resume),
            Outcome::Start { target, entry, context } => {
                (self.start(target, entry, context), Next::Resume)
            }
            Outcome::Stop => (0, Next::Exit(CPU_OFF)),
            Outcome::Wait => (0, Next::Exit(WAITS)),
            Outcome::SystemOff => (0, Next::Exit(SYSTEM_OFF)),
            Outcome::SystemReset => (0, Next::Exit(SYSTEM_RESET)),
            // None is offered.
            Outcome::Workaround(_) => (0, Next::Resume),
        };
        registers.x[0] = answer;
        next
    }

    fn send_interrupt(&mut self, register: SysReg, value: u64) {
        let register = match register {
            sysreg::ICC_SGI1R_EL1 => SgiRegister::Sgi1,
            _ => SgiRegister::Sgi0,
        };
        self.life.vgic.sgi(self.vcpu, register, value);
    }

    fn deactivate(&mut self, value: u64) {
        self.seat.take_interrupts();
        self.life.vgic.deactivate(self.vcpu, (value & 0xff_ffff) as u32);
    }

    fn before(&mut self) {
        self.seat.show_interrupts();
        masked::end();
    }

    fn after(&mut self) {
        masked::begin();
    }

    #[inline]
    fn enters(&mut self, top: Pfn, vmid: Vmid) {
        if self.is_traced {
            trace::enters(top, vmid);
        }
    }

    #[inline]
    fn leaves(&mut self, vmid: Vmid) {
        if self.is_traced {
            trace::leaves(vmid);
        }
    }

    // Out of line, so that `scripts/switches` tells by its name what the interrupt takes, and what the switch.
    #[inline(never)]
    fn interrupt(&mut self) -> Next {
        masked::begin();
        cpus::obey();
        while let Some(number) = gic::acknowledge() {
            if number == timer::VIRTUAL_TIMER {
                self.seat.take_timer();
                continue;
            }
            if is_maintenance(number) {
                self.seat.take_interrupts();
            }
            world::handle(number);
        }
        if threads::is_over_time() { Next::Yield } else { Next::Resume }
    }

    fn count(&mut self, reason: Reason) {
        self.life.books.count(reason);
    }
}

impl Board<'_> {
    fn start(&self, target: usize, entry: u64, context: u64) -> u64 {
        let memory = MEMORY..MEMORY + self.life.memory;
        if !memory.contains(&entry) {
            return self.life.psci.refused(target, Refusal::Address);
        }
        self.life.turn_on(target, entry, context);
        0
    }
}

/// What the thread of a vCPU does.
pub(super) fn main<const FWB: bool>(life: &Arc<Life>, mut vcpu: Vcpu<Kinds<FWB>>) {
    let number = vcpu.id() as usize;
    let resident = Resident::new(affinity(number), life.timer_offset);
    let Some(interface) = life.vgic.cpu_interface(number) else { return };
    let seat = Seat::new(resident, Arc::clone(&life.vgic), interface, Arc::clone(&life.books));
    life.places.take(number, vcpu.kicker());
    // SAFETY: the seat lasts until this is taken back, below; putting it neither waits nor switches.
    unsafe { threads::on_leave(Some((put, core::ptr::from_ref(&seat).cast_mut().cast()))) };

    let board = Board { life, seat: &seat, vcpu: number, is_traced: trace::is_on() };
    let mut cpu = GuestCpu::new(&seat.resident, life.confinement, board);
    let mut has_run = false;
    while life.ending().is_none() {
        let power = &life.power[number];
        if power.word.load(Ordering::Acquire) == OFF {
            life.world.wait(&power.word, OFF);
            continue;
        }
        power.word.store(OFF, Ordering::Relaxed);
        if life.ending().is_some() {
            break;
        }
        if core::mem::replace(&mut has_run, true) {
            vcpu.reset_caches();
            if let Some(interface) = life.vgic.cpu_interface(number) {
                seat.reset(interface);
            }
        }
        cpu.start(power.entry.load(Ordering::Relaxed), power.context.load(Ordering::Relaxed));
        if !life.psci.is_on(number) {
            life.psci.started(number);
        }
        run(life, &mut vcpu, &mut cpu, &seat);
    }

    seat.put();
    // SAFETY: nothing is left to be put.
    unsafe { threads::on_leave(None) };
    life.places.leave(number);
    // Before what the vCPU has is freed.
    threads::preemption_point();
}

/// Takes a vCPU's registers out of the processor.
///
/// # Safety
///
/// `seat` is one, of the thread that this is called on.
pub(super) unsafe fn put(seat: *mut ()) {
    // SAFETY: the caller's promise.
    unsafe { &*seat.cast::<Seat>() }.put();
}

/// Runs a vCPU until it is off, or the VM ends.
fn run<const FWB: bool>(
    life: &Life,
    vcpu: &mut Vcpu<Kinds<FWB>>,
    cpu: &mut GuestCpu<'_, Board<'_>>,
    seat: &Seat,
) {
    loop {
        match vcpu.run(cpu) {
            Exit::Custom(WAITS) => wait(life, vcpu, seat),
            Exit::Custom(CPU_OFF) => {
                seat.put();
                life.psci.stopped(vcpu.id() as usize);
                return;
            }
            Exit::Custom(SYSTEM_OFF) => return life.end(End::Off),
            Exit::Custom(SYSTEM_RESET) => return life.end(End::Reset),
            Exit::Mmio(access) => {
                if !interrupt_controller(life, vcpu.id() as usize, &access, cpu, seat) {
                    cpu.inject_abort(&access);
                }
            }
            Exit::Unbacked(access) => cpu.inject_abort(&access),
            Exit::Failed(access, error) => {
                say!(
                    "mayfly: {}: vCPU {}, at {}: {error}",
                    life.uart.name(),
                    vcpu.id(),
                    access.gpa
                );
                let is_memory = matches!(
                    error,
                    mayfly_vm::Error::Host(HostFault::OutOfMemory)
                        | mayfly_vm::Error::OutOfMemory(_)
                );
                return life.end(if is_memory { End::OutOfMemory } else { End::Failed });
            }
            Exit::Kicked if life.ending().is_some() => return,
            // Looked at, or nothing that this asks for.
            Exit::Kicked
            | Exit::Asked(_)
            | Exit::Custom(_)
            | Exit::Caches(_)
            | Exit::Halt
            | Exit::Port(_) => {}
        }
    }
}

/// Sleeps until there is an interrupt for the vCPU, or something is asked of it.
fn wait<const FWB: bool>(life: &Life, vcpu: &Vcpu<Kinds<FWB>>, seat: &Seat) {
    seat.put();
    let due = seat.resident.timer_due();
    if seat.is_pending() || due.is_some_and(|due| due <= timer::ticks()) {
        return;
    }
    threads::with_alarm(due, vcpu.kicker(), || vcpu.requests().wait(&*life.world));
}

/// Answers an access to the interrupt controller. Returns whether it is one.
pub(super) fn interrupt_controller(
    life: &Life,
    vcpu: usize,
    access: &Access,
    cpu: &mut GuestCpu<'_, Board<'_>>,
    seat: &Seat,
) -> bool {
    let at = access.gpa.get();
    let redistributors = REDISTRIBUTORS + REDISTRIBUTOR_BYTES * life.power.len() as u64;
    let (frame, offset) = match at {
        DISTRIBUTOR.. if at < DISTRIBUTOR + DISTRIBUTOR_BYTES => {
            (Frame::Distributor, at - DISTRIBUTOR)
        }
        REDISTRIBUTORS.. if at < redistributors => (Frame::Redistributors, at - REDISTRIBUTORS),
        _ => return false,
    };
    if access.write {
        let mut value = [0; 8];
        let data = cpu.data();
        value[..data.len()].copy_from_slice(data);
        let _ = life.vgic.write(frame, offset, access.len, u64::from_le_bytes(value));
    } else {
        let value = match life.vgic.read(vcpu, frame, offset, access.len) {
            Read::Value(value) => value,
            Read::Reserved => 0,
            Read::Retry => {
                // What this vCPU itself has of it is seen when its registers are read; another's, when it has come out.
                seat.take_interrupts();
                life.world.relax();
                return true;
            }
        };
        let data = cpu.data();
        let length = data.len();
        data.copy_from_slice(&value.to_le_bytes()[..length]);
    }
    cpu.answered();
    true
}
