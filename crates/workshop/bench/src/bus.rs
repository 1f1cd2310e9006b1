//! An MMIO read, from its address to the device that serves it.

use std::hint::black_box;
use std::sync::Arc;

use mayfly_iobus::{IoBus, IoRange, LastHit};
use mayfly_platform::Platform;
use mayfly_srcu::{Reader, Srcu};
use vm_device::DeviceMmio;
use vm_device::bus::{MmioAddress, MmioAddressOffset, MmioRange};
use vm_device::device_manager::{IoManager, MmioManager};

use crate::addresses::Addresses;

/// How many devices a VM has, usually.
pub const FEW: u64 = 32;
/// How many it may have.
pub const MANY: u64 = 1000;
/// From one device's first address to the next one's.
const STRIDE: u64 = 0x2000;
/// How many addresses a device has.
const LEN: u64 = 0x1000;
/// How many bytes are read.
const WIDTH: usize = 4;

/// What is on the buses: a device behind a pointer, as vm-device has it.
pub type Device = Arc<dyn DeviceMmio + Send + Sync>;

/// Answers with a number that it keeps. The same on both buses, and called the same way.
struct Register(u32);

impl DeviceMmio for Register {
    fn mmio_read(&self, _: MmioAddress, _: MmioAddressOffset, data: &mut [u8]) {
        if let Ok(data) = data.try_into() {
            let data: &mut [u8; WIDTH] = data;
            *data = self.0.to_le_bytes();
        }
    }

    fn mmio_write(&self, _: MmioAddress, _: MmioAddressOffset, _: &[u8]) {}
}

/// The device that a bus has in place `index`.
pub fn device(index: u64) -> Device {
    Arc::new(Register(index as u32))
}

/// Reads of any of `devices` devices, uniformly.
pub fn uniform(devices: u64) -> Addresses {
    Addresses::uniform(devices, STRIDE, LEN, WIDTH as u64)
}

/// Reads of one of `devices` devices only.
pub fn same(devices: u64) -> Addresses {
    Addresses::same(devices / 2 * STRIDE + 8)
}

/// Where device `index` is on Mayfly's bus.
pub fn range(index: u64) -> IoRange {
    IoRange { start: index * STRIDE, len: LEN }
}

/// Mayfly's bus with `devices` devices.
///
/// # Panics
///
/// If there is no memory for it.
pub fn mayfly(domain: &Srcu, platform: Arc<dyn Platform>, devices: u64) -> IoBus<Device> {
    let bus = IoBus::try_new(domain, platform).expect("a bus takes little memory");
    for index in 0..devices {
        assert!(bus.register(range(index), device(index)).is_ok(), "no two devices overlap");
    }
    bus
}

/// Registers a device with vm-device's manager, as device `index`.
///
/// # Panics
///
/// If there is one already.
pub fn register_with_vm_device(manager: &mut IoManager, index: u64, device: Device) {
    let range = MmioRange::new(MmioAddress(index * STRIDE), LEN).expect("not empty");
    manager.register_mmio(range, device).expect("no two devices overlap");
}

/// vm-device's manager with `devices` devices.
pub fn vm_device(devices: u64) -> IoManager {
    let mut manager = IoManager::new();
    for index in 0..devices {
        register_with_vm_device(&mut manager, index, device(index));
    }
    manager
}

/// `count` reads at `addresses`, each a section of its own.
///
/// # Panics
///
/// If no device is at one of the addresses.
#[inline(never)]
pub fn mayfly_reads(
    bus: &IoBus<Device>,
    reader: &Reader,
    last: &mut LastHit,
    addresses: &Addresses,
    count: u32,
) {
    for address in addresses.take(count) {
        let mut data = [0; WIDTH];
        let section = reader.lock();
        let hit = bus.find(&section, last, address, WIDTH as u64).expect("a device is there");
        hit.device.mmio_read(MmioAddress(address - hit.offset), hit.offset, &mut data);
        drop(section);
        black_box(data);
    }
}

/// `count` reads at `addresses`, with no lock at all.
///
/// # Panics
///
/// If no device is at one of the addresses.
#[inline(never)]
pub fn vm_device_reads(manager: &IoManager, addresses: &Addresses, count: u32) {
    for address in addresses.take(count) {
        let mut data = [0; WIDTH];
        manager.mmio_read(MmioAddress(address), &mut data).expect("a device is there");
        black_box(data);
    }
}
