//! The devices, on the buses of a VM.

use alloc::sync::Arc;

use mayfly_devices::{cmos, uart16550};
use mayfly_vapic::IOAPIC_SIZE;
use mayfly_vm::iobus::IoRange;
use mayfly_vm::{Bus, Device, Vm, iobus};
use mayfly_x86::machine::layout;

use super::board::{Board, End};
use super::host::Kinds;
use crate::program::processor::console;

/// Puts all devices on the buses.
pub(super) fn register(vm: &Vm<Kinds>, board: &Arc<Board>) -> Result<(), iobus::Error> {
    let ports = |start: u16, len| (Bus::Pio, IoRange { start: start.into(), len });
    let memory = (Bus::Mmio, IoRange { start: layout::IOAPIC, len: IOAPIC_SIZE });
    let board = || Arc::clone(board);
    let devices: [((Bus, IoRange), Arc<dyn Device>); 4] = [
        (ports(layout::UART, uart16550::PORTS), Arc::new(Uart(board()))),
        (ports(layout::CLOCK, cmos::PORTS), Arc::new(Clock(board()))),
        (ports(layout::SLEEP_CONTROL, 3), Arc::new(Power(board()))),
        (memory, Arc::new(Ioapic(board()))),
    ];
    devices.into_iter().try_for_each(|((bus, range), device)| {
        vm.register_device(bus, range, device).map_err(|refused| refused.error)
    })
}

/// The bytes of a value, as many as are read.
fn answer(value: u64, data: &mut [u8]) {
    let bytes = value.to_le_bytes();
    let count = data.len().min(bytes.len());
    data[..count].copy_from_slice(&bytes[..count]);
}

fn written(data: &[u8]) -> u64 {
    data.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

/// The console, whose other end is the machine's own.
struct Uart(Arc<Board>);

impl Device for Uart {
    fn read(&self, _vcpu: u32, offset: u64, data: &mut [u8]) {
        // An access of several bytes is one to each port.
        for (offset, byte) in (offset..).zip(data) {
            *byte = self.0.uart.lock().read(offset);
        }
        self.0.drive_uart();
    }

    fn write(&self, _vcpu: u32, offset: u64, data: &[u8]) {
        for (offset, byte) in (offset..).zip(data) {
            let sent = self.0.uart.lock().write(offset, *byte);
            if let Some(byte) = sent {
                console::put(byte);
            }
        }
        self.0.drive_uart();
    }
}

/// The clock.
struct Clock(Arc<Board>);

impl Device for Clock {
    fn read(&self, _vcpu: u32, offset: u64, data: &mut [u8]) {
        let second = self.0.second();
        for (offset, byte) in (offset..).zip(data) {
            *byte = self.0.clock.lock().read(offset, second);
        }
    }

    fn write(&self, _vcpu: u32, offset: u64, data: &[u8]) {
        for (offset, byte) in (offset..).zip(data) {
            self.0.clock.lock().write(offset, *byte);
        }
    }
}

/// The registers by which the guest turns its machine off, and resets it.
struct Power(Arc<Board>);

impl Device for Power {
    fn read(&self, _vcpu: u32, _offset: u64, data: &mut [u8]) {
        data.fill(0);
    }

    fn write(&self, _vcpu: u32, offset: u64, data: &[u8]) {
        let base = u64::from(layout::SLEEP_CONTROL);
        for (port, &byte) in (base + offset..).zip(data) {
            if port == base && layout::is_off(byte) {
                self.0.end(End::Off);
            } else if port == u64::from(layout::RESET) && byte == layout::RESET_VALUE {
                self.0.end(End::Reset);
            }
        }
    }
}

/// The IOAPIC.
struct Ioapic(Arc<Board>);

impl Device for Ioapic {
    fn read(&self, _vcpu: u32, offset: u64, data: &mut [u8]) {
        answer(self.0.vapic.read_ioapic(offset, data.len() as u64).into(), data);
    }

    fn write(&self, _vcpu: u32, offset: u64, data: &[u8]) {
        self.0.vapic.write_ioapic(offset, data.len() as u64, written(data));
    }
}
