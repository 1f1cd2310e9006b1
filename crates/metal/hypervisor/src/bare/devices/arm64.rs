//! The machine of a guest on arm64, as its devices need to know it: a `GICv3`, a PL011 and a PL031, and the addresses
//! and interrupts of the devices.

use alloc::sync::Arc;

use mayfly_vgic::{Kick, Vgic};

use crate::bare::threads::kick::Places;

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
