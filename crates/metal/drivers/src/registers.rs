//! The registers of a device, wherever the machine has it.

use virtio_drivers::transport::mmio::MmioTransport;
use virtio_drivers::transport::{DeviceStatus, DeviceType, InterruptStatus, Transport};
use virtio_drivers::{Error, PhysAddr};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::pci::PciRegisters;

/// The registers of a device.
#[derive(Debug)]
pub enum Registers {
    /// In memory (`virtio,mmio`).
    Mmio(MmioTransport<'static>),
    /// On a PCI bus.
    Pci(PciRegisters),
}

/// Asks either.
macro_rules! either {
    ($this:expr, $registers:ident => $ask:expr) => {
        match $this {
            Registers::Mmio($registers) => $ask,
            Registers::Pci($registers) => $ask,
        }
    };
}

impl Transport for Registers {
    fn device_type(&self) -> DeviceType {
        either!(self, it => it.device_type())
    }

    fn read_device_features(&mut self) -> u64 {
        either!(self, it => it.read_device_features())
    }

    fn write_driver_features(&mut self, driver_features: u64) {
        either!(self, it => it.write_driver_features(driver_features));
    }

    fn max_queue_size(&mut self, queue: u16) -> u32 {
        either!(self, it => it.max_queue_size(queue))
    }

    fn notify(&mut self, queue: u16) {
        either!(self, it => it.notify(queue));
    }

    fn get_status(&self) -> DeviceStatus {
        either!(self, it => it.get_status())
    }

    fn set_status(&mut self, status: DeviceStatus) {
        either!(self, it => it.set_status(status));
    }

    fn set_guest_page_size(&mut self, guest_page_size: u32) {
        either!(self, it => it.set_guest_page_size(guest_page_size));
    }

    fn requires_legacy_layout(&self) -> bool {
        either!(self, it => it.requires_legacy_layout())
    }

    fn queue_set(
        &mut self,
        queue: u16,
        size: u32,
        descriptors: PhysAddr,
        driver_area: PhysAddr,
        device_area: PhysAddr,
    ) {
        either!(self, it => it.queue_set(queue, size, descriptors, driver_area, device_area));
    }

    fn queue_unset(&mut self, queue: u16) {
        either!(self, it => it.queue_unset(queue));
    }

    fn queue_used(&mut self, queue: u16) -> bool {
        either!(self, it => it.queue_used(queue))
    }

    fn ack_interrupt(&mut self) -> InterruptStatus {
        either!(self, it => it.ack_interrupt())
    }

    fn read_config_generation(&self) -> u32 {
        either!(self, it => it.read_config_generation())
    }

    fn read_config_space<T: FromBytes + IntoBytes>(&self, offset: usize) -> Result<T, Error> {
        either!(self, it => it.read_config_space(offset))
    }

    fn write_config_space<T: IntoBytes + Immutable>(
        &mut self,
        offset: usize,
        value: T,
    ) -> Result<(), Error> {
        either!(self, it => it.write_config_space(offset, value))
    }
}
