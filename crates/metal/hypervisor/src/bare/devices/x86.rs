//! The machine of a guest on x86-64, as its devices need to know it: an IOAPIC, a 16550 and a CMOS clock, and the addresses,
//! ports and pins of the devices.

use alloc::sync::Arc;
use core::convert::Infallible;

use mayfly_devices::cmos::Cmos;
use mayfly_devices::{cmos, uart16550};
use mayfly_hypervisor::x86::layout;
use mayfly_vapic::{Kick, Vapic};
use mayfly_vm::Bus;

use super::lines::Lines;
use super::virtio::Ram;
use crate::bare::threads::interrupts::look;
use crate::bare::threads::kick::Places;

pub(crate) use mayfly_devices::uart16550::Uart16550 as SerialPort;
pub(crate) use mayfly_hypervisor::x86::layout::{
    BALLOON, BALLOON_INTERRUPT, CARD, CARD_INTERRUPT, CLOCK_INTERRUPT, CONSOLE, CONSOLE_INTERRUPT,
    DISK, DISK_INTERRUPT, ENTROPY, ENTROPY_INTERRUPT, MEMORY, UART_INTERRUPT, VIRTIO, VIRTIO_BYTES,
    VIRTIO_PAGE_BYTES, registers,
};

/// The first port of the serial port.
pub(crate) const UART: u64 = layout::UART as u64;
pub(crate) const UART_BYTES: u64 = uart16550::PORTS;
/// The first port of the clock.
pub(crate) const CLOCK: u64 = layout::CLOCK as u64;
pub(crate) const CLOCK_BYTES: u64 = cmos::PORTS;
/// The buses that a guest has.
pub(crate) const BUSES: [Bus; 2] = [Bus::Mmio, Bus::Pio];
/// The bus of the serial port and the clock.
pub(crate) const BUS: Bus = Bus::Pio;

/// The vCPUs of a run, which its APICs kick.
#[derive(Clone)]
pub(crate) struct Kicked(pub(crate) Arc<Places>);

impl Kick for Kicked {
    fn kick(&self, vcpu: usize) {
        self.0.kick(vcpu);
    }

    /// Interrupts are looked for between many vCPUs. Their handlers send no message.
    fn pause(&self) {
        look();
    }
}

/// The interrupt controllers of a VM.
pub(crate) type Controller = Vapic<Kicked>;

/// Sets the line of a device's interrupt, which is a pin of the IOAPIC.
pub(crate) fn set_line(controller: &Controller, interrupt: u32, level: bool) {
    // The pin is there: the layout has it.
    let _ = controller.set_line(interrupt as usize, level);
}

/// The guest reads its serial port. A read of several bytes is one of each port.
pub(crate) fn read_serial(port: &mut SerialPort, offset: u64, data: &mut [u8]) {
    for (offset, byte) in (offset..).zip(data) {
        *byte = port.read(offset);
    }
}

/// The guest writes to its serial port, to each port a byte: what it prints by that.
pub(crate) fn write_serial(port: &mut SerialPort, offset: u64, data: &[u8]) -> Option<u8> {
    // One of the ports prints.
    (offset..).zip(data).filter_map(|(offset, byte)| port.write(offset, *byte)).last()
}

/// A clock, which has no alarm.
#[derive(Clone, Debug)]
pub(crate) struct RealTimeClock(Cmos);

#[expect(clippy::unused_self, reason = "a clock with an alarm has one to look at")]
impl RealTimeClock {
    pub(crate) fn new() -> Self {
        Self(Cmos::new())
    }

    /// Its line never rises.
    pub(crate) fn interrupt(&self) -> bool {
        false
    }

    pub(crate) fn advance(&mut self, _now: u64) {}

    pub(crate) fn next_alarm(&self, _now: u64) -> Option<u32> {
        None
    }
}

/// The guest reads its clock, in that second.
pub(crate) fn read_clock(clock: &mut RealTimeClock, offset: u64, now: u64, data: &mut [u8]) {
    for (offset, byte) in (offset..).zip(data) {
        *byte = clock.0.read(offset, now);
    }
}

/// The guest writes to its clock.
pub(crate) fn write_clock(clock: &mut RealTimeClock, offset: u64, _now: u64, data: &[u8]) {
    for (offset, byte) in (offset..).zip(data) {
        clock.0.write(offset, *byte);
    }
}

/// An interrupt controller's own work, of which there is none on this architecture.
pub(crate) struct Its(Infallible);

impl Its {
    pub(crate) fn of(_lines: &Arc<Lines>) -> Option<Self> {
        None
    }

    pub(crate) fn serve(&self, _ram: &Ram<'_>) -> bool {
        match self.0 {}
    }

    pub(crate) fn wait_after(&self, _ring: impl FnOnce()) {
        match self.0 {}
    }
}
