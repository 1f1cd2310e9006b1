//! The exits of a vCPU on arm64: what the run answers itself, and with what the vCPU stops.

use mayfly_arm64::guest::GuestCpu;
use mayfly_arm64::machine::{Machine, Next, Reason, WAITS};
use mayfly_arm64::switch::Registers;
use mayfly_arm64::sysreg::{self, SysReg};
use mayfly_arm64::{gic, timer};
use mayfly_devices::psci::{Outcome, Refusal};
use mayfly_devices::smccc::{self, Workarounds};
use mayfly_hypervisor::arm64::layout::{
    DISTRIBUTOR, DISTRIBUTOR_BYTES, IDENTITY, IDENTITY_BYTES, ITS, ITS_BYTES, MEMORY,
    REDISTRIBUTOR_BYTES, REDISTRIBUTORS, VIRTIO, VIRTIO_PAGE_BYTES,
};
use mayfly_vgic::{Frame, Read, SgiRegister};
use mayfly_vm::platform::Platform;
use mayfly_vm::platform::address::{Gpa, Pfn};
use mayfly_vm::platform::tlb::Vmid;
use mayfly_vm::{Access, Guest};

use super::seat::{Seat, is_maintenance};
use crate::bare::processor::{masked, serve_others, trace, traced};
use crate::bare::threads;
use crate::bare::vm::format::TableFormat;
use crate::bare::vm::run::Run;
use crate::bare::vm::stop::Stop;

/// Numbers of [`Exit::Custom`](mayfly_vm::Exit::Custom), beside [`WAITS`].
const CPU_OFF: u64 = 1;
const SYSTEM_OFF: u64 = 2;
const SYSTEM_RESET: u64 = 3;

/// What a number of [`Exit::Custom`](mayfly_vm::Exit::Custom) means.
pub(crate) fn stop(number: u64) -> Option<Stop> {
    match number {
        WAITS => Some(Stop::Wait),
        CPU_OFF => Some(Stop::Off),
        SYSTEM_OFF => Some(Stop::SystemOff),
        SYSTEM_RESET => Some(Stop::SystemReset),
        _ => None,
    }
}

/// The processor of a vCPU.
pub(crate) type Processor<'a, F> = GuestCpu<'a, F, Board<'a>>;

/// The processor of vCPU `vcpu` of a run.
pub(crate) fn processor<'a, F: TableFormat>(
    run: &'a Run,
    seat: &'a Seat,
    vcpu: usize,
) -> Processor<'a, F> {
    let board = Board { run, seat, vcpu, is_traced: trace::is_on() };
    GuestCpu::new(&seat.resident, F::confinement(), board)
}

/// What answers a vCPU's processor.
pub(crate) struct Board<'a> {
    run: &'a Run,
    seat: &'a Seat,
    vcpu: usize,
    /// A trace is being kept, since before the VM was made.
    is_traced: bool,
}

// SAFETY: none of them runs a vCPU. Interrupts are masked, and what they ask of the threads is done by the caller of the
// core when the guest is left.
unsafe impl Machine for Board<'_> {
    fn call(&mut self, registers: &mut Registers) -> Next {
        let arguments = [registers.x[0], registers.x[1], registers.x[2], registers.x[3]];
        let outcome =
            smccc::call(&self.run.chipset.psci, Workarounds::default(), self.vcpu, &arguments);
        let (answer, next) = match outcome {
            Outcome::Return(value) => (value, Next::Resume),
            Outcome::Start { target, entry, context } => {
                (self.start(target, entry, context), Next::Resume)
            }
            Outcome::Stop => (0, Next::Exit(CPU_OFF)),
            Outcome::Wait => (0, Next::Exit(WAITS)),
            Outcome::SystemOff => (0, Next::Exit(SYSTEM_OFF)),
            Outcome::SystemReset => (0, Next::Exit(SYSTEM_RESET)),
            // No workaround is offered.
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
        let (controller, vcpu) = (&self.run.chipset.controller, self.vcpu);
        controller.sgi_with_pauses(vcpu, register, value, &mut || self.look());
    }

    fn deactivate(&mut self, value: u64) {
        self.seat.take_interrupts();
        self.run.chipset.controller.deactivate(self.vcpu, (value & 0xff_ffff) as u32);
    }

    #[inline]
    fn is_to_yield(&self, cpu: usize) -> bool {
        // SAFETY: this processor's number, as the caller says.
        unsafe { threads::is_over_time_on(cpu) }
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
            traced::enters(top, vmid);
        }
    }

    #[inline]
    fn leaves(&mut self, vmid: Vmid) {
        if self.is_traced {
            traced::leaves(vmid);
        }
    }

    // Out of line: by its name `scripts/switches` tells the instructions of the interrupt from those of the switch.
    #[inline(never)]
    fn interrupt(&mut self) -> Next {
        masked::begin();
        while let Some(number) = gic::acknowledge() {
            if let timer::VIRTUAL_TIMER | timer::PHYSICAL_TIMER = number {
                self.seat.take_timer(number);
                continue;
            }
            if number == gic::COUNTERS {
                // The processor's line falls, since what it says is the virtual GIC's to say now.
                self.seat.show_counters();
                gic::deactivate(number);
                continue;
            }
            if is_maintenance(number) {
                self.seat.take_interrupts();
                gic::deactivate(number);
                continue;
            }
            threads::interrupts::handle(number);
        }
        // Behind them, as where a thread looks (`threads::interrupts::take`).
        serve_others();
        if threads::is_over_time() { Next::Yield } else { Next::Resume }
    }

    fn counters_line(&mut self, high: bool) {
        self.seat.set_counters_line(high);
    }

    fn count(&mut self, reason: Reason) {
        self.run.counts.count(reason);
    }

    fn answered(&mut self, at: Gpa) {
        self.run.counts.count_answer(at.get());
    }
}

impl Board<'_> {
    /// Looks for interrupts in the midst of an answer. If the thread is to give its processor up, it does so before the guest
    /// is entered next.
    fn look(&mut self) {
        masked::end();
        let _ = self.interrupt();
    }

    fn start(&self, target: usize, entry: u64, context: u64) -> u64 {
        let memory = MEMORY..MEMORY + self.run.memory;
        if !memory.contains(&entry) {
            return self.run.chipset.psci.refused(target, Refusal::Address);
        }
        self.run.turn_on(target, entry, context);
        0
    }
}

/// A vCPU turns itself off, of which nobody is told.
pub(crate) fn goes_off<F: TableFormat>(
    _run: &Run,
    _vcpu: usize,
    _number: u64,
    _cpu: &Processor<'_, F>,
) {
}

/// A guest has accessed a port that is not there. None does: this architecture has no ports.
pub(crate) fn no_port<F: TableFormat>(_cpu: &mut Processor<'_, F>) {}

/// Answers an access to the interrupt controller, or to what the guest is told of its VM. Returns whether it is one.
pub(crate) fn answer<F: TableFormat>(
    run: &Run,
    vcpu: usize,
    access: &Access,
    cpu: &mut Processor<'_, F>,
    seat: &Seat,
) -> bool {
    let at = access.gpa.get();
    let redistributors = REDISTRIBUTORS + REDISTRIBUTOR_BYTES * run.power.len() as u64;
    let (frame, offset) = match at {
        DISTRIBUTOR.. if at < DISTRIBUTOR + DISTRIBUTOR_BYTES => {
            (Frame::Distributor, at - DISTRIBUTOR)
        }
        REDISTRIBUTORS.. if at < redistributors => (Frame::Redistributors, at - REDISTRIBUTORS),
        ITS.. if at < ITS + ITS_BYTES && run.chipset.controller.has_its() => (Frame::Its, at - ITS),
        IDENTITY.. if at < IDENTITY + IDENTITY_BYTES => {
            if !access.write {
                run.identity.read(at - IDENTITY, cpu.data());
            }
            cpu.answered();
            return true;
        }
        // A guest that reads its devices' registers from memory finds zeroes beside them, and so does a fork of it, which reads
        // them by exits.
        VIRTIO.. if at < VIRTIO + VIRTIO_PAGE_BYTES && !access.write => {
            cpu.data().fill(0);
            cpu.answered();
            return true;
        }
        _ => return false,
    };
    if frame == Frame::Redistributors {
        seat.sample_timers();
        if access.write && run.chipset.controller.has_its() {
            // LPIs that it turns off here are seen as the guest has left them.
            seat.take_interrupts();
        }
    }
    if access.write {
        let mut value = [0; 8];
        let data = cpu.data();
        value[..data.len()].copy_from_slice(data);
        let value = u64::from_le_bytes(value);
        let pause = &mut threads::interrupts::look;
        let _ = run.chipset.controller.write_with_pauses(frame, offset, access.len, value, pause);
        if run.chipset.controller.has_its_work() {
            run.devices.its_has_work();
        }
    } else {
        let value = match run.chipset.controller.read(vcpu, frame, offset, access.len) {
            Read::Value(value) => value,
            Read::Reserved => 0,
            Read::Retry => {
                // The part of it that this vCPU has is seen once its registers are saved; that of another, once that
                // one has left its guest.
                seat.take_interrupts();
                run.world.relax();
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
