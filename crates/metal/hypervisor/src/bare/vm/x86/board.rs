//! The exits of a vCPU on x86-64: what the run answers itself, and with what the vCPU stops.

use mayfly_hypervisor::ending::End;
use mayfly_hypervisor::x86::layout::{
    IOAPIC, MEMORY, RESET, SLEEP_CONTROL, VIRTIO, VIRTIO_PAGE_BYTES,
};
use mayfly_vapic::{IOAPIC_SIZE, Vapic};
use mayfly_vm::Access;
use mayfly_vm::platform::address::Pfn;
use mayfly_vm::platform::tlb::Vmid;
use mayfly_x86::bare::guest::{CANNOT, GuestCpu, Machine, Next, Reason, SHUT_DOWN, Time, WAITS};
use mayfly_x86::machine::layout::{RESET_VALUE, is_off};
use mayfly_x86::svm::exit::Port;

use super::seat::Seat;
use crate::bare::devices::arch::Kicked;
use crate::bare::processor::interrupts::acknowledge;
use crate::bare::processor::this_cpu::{enters, has_not_flushed, leaves};
use crate::bare::processor::{masked, serve_others, trace, traced};
use crate::bare::threads;
use crate::bare::threads::console::say;
use crate::bare::vm::format::TableFormat;
use crate::bare::vm::run::Run;
use crate::bare::vm::stop::Stop;
use crate::bare::world::memory::GuestMemory;

/// Numbers of [`Exit::Custom`](mayfly_vm::Exit::Custom), beside those of the processor.
const SYSTEM_OFF: u64 = 3;
const SYSTEM_RESET: u64 = 4;
/// The access is one that has changed nothing.
const NOTHING: u64 = 5;

/// Bytes of the ports by which the guest turns its machine off, and resets it.
const POWER_PORTS: u16 = 3;

/// What a number of [`Exit::Custom`](mayfly_vm::Exit::Custom) means.
pub(crate) fn stop(number: u64) -> Option<Stop> {
    match number & 0xff {
        WAITS => Some(Stop::Wait),
        SHUT_DOWN | CANNOT => Some(Stop::Off),
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
    let apic = run.chipset.controller.local_apic(vcpu).expect("a seat is of a vCPU that is there");
    let kind = (run.power.len() as u32, run.chipset.x2apic);
    let board = Board { run, is_traced: trace::is_on() };
    GuestCpu::new(&seat.resident, F::confinement(), apic, kind, board)
}

/// What answers a vCPU's processor.
pub(crate) struct Board<'a> {
    run: &'a Run,
    /// A trace is being kept, since before the VM was made.
    is_traced: bool,
}

// SAFETY: none of them runs a vCPU. Interrupts are masked, and what they ask of the threads is done by the caller of the
// core when the guest is left. `enters` and `leaves` are those of this processor.
unsafe impl Machine for Board<'_> {
    type Kick = Kicked;
    type Ram = GuestMemory;

    #[inline]
    fn vapic(&self) -> &Vapic<Kicked> {
        &self.run.chipset.controller
    }

    #[inline]
    fn ram(&self) -> &GuestMemory {
        &self.run.chipset.memory
    }

    fn memory_end(&self) -> u64 {
        MEMORY + self.run.memory
    }

    fn is_shown(&self, address: u64) -> bool {
        address.wrapping_sub(VIRTIO) < VIRTIO_PAGE_BYTES
    }

    #[inline]
    fn time(&self) -> &Time {
        &self.run.chipset.time
    }

    fn port(&mut self, port: Port, value: u64) -> Option<u64> {
        let first = port.port.checked_sub(SLEEP_CONTROL).filter(|first| *first < POWER_PORTS)?;
        if !port.write {
            return None;
        }
        self.run.counts.count_answer(port.port.into());
        let bytes = value.to_le_bytes();
        let written = (SLEEP_CONTROL + first..).zip(&bytes[..usize::from(port.bytes)]);
        let meaning = written.filter_map(|(port, &byte)| match port {
            SLEEP_CONTROL if is_off(byte) => Some(SYSTEM_OFF),
            RESET if byte == RESET_VALUE => Some(SYSTEM_RESET),
            _ => None,
        });
        Some({ meaning }.next().unwrap_or(NOTHING))
    }

    fn device(&mut self, address: u64, bytes: u64, written: Option<u64>) -> Option<u64> {
        let offset = address.checked_sub(IOAPIC).filter(|offset| *offset < IOAPIC_SIZE)?;
        self.run.counts.count_answer(address);
        let controller = &self.run.chipset.controller;
        match written {
            Some(value) => {
                controller.write_ioapic(offset, bytes, value);
                Some(0)
            }
            None => Some(controller.read_ioapic(offset, bytes).into()),
        }
    }

    #[inline]
    fn is_to_yield(&self, cpu: usize) -> bool {
        // SAFETY: this processor's number, as the caller says.
        unsafe { threads::is_over_time_on(cpu) }
    }

    #[inline]
    fn enters(&mut self, vmid: Vmid) -> bool {
        masked::end();
        enters(vmid)
    }

    #[inline]
    fn walks(&mut self, top: Pfn, vmid: Vmid, tlb_control: u32) {
        if self.is_traced {
            traced::enters(top, vmid, tlb_control);
        }
    }

    #[inline]
    fn leaves(&mut self, vmid: Vmid) {
        if self.is_traced {
            traced::leaves(vmid);
        }
        leaves();
    }

    fn refused(&mut self) {
        has_not_flushed();
    }

    #[inline]
    fn after(&mut self) {
        masked::begin();
    }

    fn interrupt(&mut self) -> Next {
        masked::begin();
        while let Some(number) = acknowledge() {
            threads::interrupts::handle(number);
        }
        // Behind them, as where a thread looks (`threads::interrupts::take`).
        serve_others();
        if threads::is_over_time() { Next::Yield } else { Next::Resume }
    }

    #[inline]
    fn count(&mut self, reason: Reason) {
        self.run.counts.count(reason);
    }

    #[inline]
    fn answered(&mut self, at: u64) {
        self.run.counts.count_answer(at);
    }
}

/// The guest has accessed a port that is not there.
pub(crate) fn no_port<F: TableFormat>(cpu: &mut Processor<'_, F>) {
    cpu.no_port();
}

/// A vCPU stops, since it cannot go on: its run ends, and the console says why.
pub(crate) fn goes_off<F: TableFormat>(
    run: &Run,
    vcpu: usize,
    number: u64,
    cpu: &Processor<'_, F>,
) {
    let name = run.uart.name();
    if number == SHUT_DOWN {
        say!("mayfly: {name}: vCPU {vcpu} has shut down (a triple fault)");
    } else {
        let (at, code) = (cpu.at(), number >> 8);
        say!(
            "mayfly: {name}: vCPU {vcpu} came out at {at:#x} with {code:#x}, which means nothing here"
        );
    }
    run.end(End::Failed);
}

/// Answers an access that no device on the buses has. None is: what the run has itself was answered before.
pub(crate) fn answer<F: TableFormat>(
    _run: &Run,
    _vcpu: usize,
    _access: &Access,
    _cpu: &mut Processor<'_, F>,
    _seat: &Seat,
) -> bool {
    false
}
