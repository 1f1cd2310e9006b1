//! A guest's console: a PL011, whose other end is the machine's own console when the VM is in front.

use alloc::string::String;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

use mayfly_arm64::spin::SpinLock;
use mayfly_devices::line::settle;
use mayfly_devices::pl011::Pl011;
use mayfly_hypervisor::layout::UART_INTERRUPT;
use mayfly_vm::Device;

use super::console;
use super::seat::Gic;

/// A VM's console. It outlives the lives of its VM.
pub(super) struct Uart {
    name: String,
    device: SpinLock<Pl011>,
    /// The GIC of the present life.
    line: SpinLock<Option<Arc<Gic>>>,
    is_in_front: AtomicBool,
    log: SpinLock<Log>,
}

/// The last bytes that a guest has said.
struct Log {
    bytes: [u8; 4096],
    /// How many were said; the next one's place follows from it.
    count: usize,
}

impl Log {
    fn put(&mut self, byte: u8) {
        let at = self.count % self.bytes.len();
        self.bytes[at] = byte;
        self.count += 1;
    }

    fn print(&self) {
        let (later, earlier) = self.bytes.split_at(self.count % self.bytes.len());
        if self.count > self.bytes.len() {
            console::bytes(earlier);
        }
        console::bytes(later);
    }
}

impl Uart {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            device: SpinLock::new(Pl011::new()),
            line: SpinLock::new(None),
            is_in_front: AtomicBool::new(false),
            log: SpinLock::new(Log { bytes: [0; 4096], count: 0 }),
        }
    }

    /// The VM's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// As after power-on, with its line to the GIC of a life; or, at its end, to none.
    pub(super) fn reset(&self, line: Option<Arc<Gic>>) {
        *self.device.lock() = Pl011::new();
        let old = core::mem::replace(&mut *self.line.lock(), line);
        drop(old);
    }

    /// Has what the guest says be seen, or not.
    pub(super) fn set_in_front(&self, is_in_front: bool) {
        self.is_in_front.store(is_in_front, Ordering::Relaxed);
    }

    /// Something was typed. Returns how many of the bytes were taken.
    pub(super) fn typed(&self, bytes: &[u8]) -> usize {
        let taken = self.device.lock().receive(bytes);
        self.drive();
        taken
    }

    /// Prints the last that the guest has said.
    pub(super) fn print_log(&self) {
        self.log.lock().print();
    }

    fn drive(&self) {
        let line = self.line.lock().clone();
        let Some(line) = line else { return };
        settle(
            || self.device.lock().interrupt(),
            |level| {
                // The SPI is there: the layout has it.
                let _ = line.set_spi(UART_INTERRUPT, level);
            },
        );
    }
}

impl Device for Uart {
    fn read(&self, _vcpu: u32, offset: u64, data: &mut [u8]) {
        let value = u64::from(self.device.lock().read(offset));
        let length = data.len().min(8);
        data[..length].copy_from_slice(&value.to_le_bytes()[..length]);
        self.drive();
    }

    fn write(&self, _vcpu: u32, offset: u64, data: &[u8]) {
        let mut value = [0; 4];
        let length = data.len().min(4);
        value[..length].copy_from_slice(&data[..length]);
        let sent = self.device.lock().write(offset, u32::from_le_bytes(value));
        if let Some(byte) = sent {
            self.log.lock().put(byte);
            if self.is_in_front.load(Ordering::Relaxed) {
                console::bytes(&[byte]);
            }
        }
        self.drive();
    }
}
