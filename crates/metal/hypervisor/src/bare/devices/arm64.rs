//! The machine of a guest on arm64, as its devices need to know it: a `GICv3`, a PL011 and a PL031, and the addresses
//! and interrupts of the devices.

use alloc::sync::Arc;

use mayfly_vgic::{Kick, Vgic};
use mayfly_vm::Bus;

use crate::bare::threads::kick::Places;
use words::{answer, written};

mod its;
mod words;

pub(crate) use its::Its;
pub(crate) use mayfly_devices::pl011::Pl011 as SerialPort;
pub(crate) use mayfly_devices::rtc::Pl031 as RealTimeClock;
pub(crate) use mayfly_hypervisor::arm64::layout::{
    BALLOON, BALLOON_INTERRUPT, CARD, CARD_INTERRUPT, CLOCK, CLOCK_BYTES, CLOCK_INTERRUPT, CONSOLE,
    CONSOLE_INTERRUPT, DISK, DISK_INTERRUPT, ENTROPY, ENTROPY_INTERRUPT, MEMORY, UART, UART_BYTES,
    UART_INTERRUPT, VIRTIO, VIRTIO_BYTES, VIRTIO_PAGE_BYTES, registers,
};

/// The vCPUs of a run, which its GIC kicks.
#[derive(Clone)]
pub(crate) struct Kicked(pub(crate) Arc<Places>);

impl Kick for Kicked {
    fn kick(&self, vcpu: usize) {
        self.0.kick(vcpu);
    }
}

/// The interrupt controller of a VM.
pub(crate) type Controller = Vgic<Kicked>;

/// Sets the line of a device's interrupt.
pub(crate) fn set_line(controller: &Controller, interrupt: u32, level: bool) {
    // The SPI is there: the layout has it.
    let _ = controller.set_spi(interrupt, level);
}

/// The buses that a guest has.
pub(crate) const BUSES: [Bus; 1] = [Bus::Mmio];
/// The bus of the serial port and the clock.
pub(crate) const BUS: Bus = Bus::Mmio;

/// The guest reads a register of its serial port.
pub(crate) fn read_serial(port: &mut SerialPort, offset: u64, data: &mut [u8]) {
    answer(port.read(offset), data);
}

/// The guest writes a register of its serial port: what it prints by that.
pub(crate) fn write_serial(port: &mut SerialPort, offset: u64, data: &[u8]) -> Option<u8> {
    port.write(offset, written(data))
}

/// The guest reads a register of its clock, in that second.
pub(crate) fn read_clock(clock: &mut RealTimeClock, offset: u64, now: u64, data: &mut [u8]) {
    answer(clock.read(offset, now), data);
}

/// The guest writes a register of its clock, in that second.
pub(crate) fn write_clock(clock: &mut RealTimeClock, offset: u64, now: u64, data: &[u8]) {
    clock.write(offset, written(data), now);
}
