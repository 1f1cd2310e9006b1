//! A guest's console: a PL011, whose other end is the machine's own console when the VM is in front.

use alloc::string::String;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

use mayfly_arm64::spin::SpinLock;
use mayfly_devices::line::settle;
use mayfly_devices::pl011::Pl011;
use mayfly_hypervisor::layout::UART_INTERRUPT;
use mayfly_hypervisor::log::{Log, PIECE, Search};
use mayfly_vm::Device;

use super::seat::Gic;
use super::{console, threads};

/// A VM's console. It outlives the lives of its VM.
pub(super) struct Uart {
    name: String,
    device: SpinLock<Pl011>,
    /// The GIC of the present life.
    line: SpinLock<Option<Arc<Gic>>>,
    is_in_front: AtomicBool,
    log: SpinLock<Log>,
}

impl Uart {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            device: SpinLock::new(Pl011::new()),
            line: SpinLock::new(None),
            is_in_front: AtomicBool::new(false),
            log: SpinLock::new(Log::default()),
        }
    }

    /// The VM's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// A life is about to begin: what was said is another's.
    pub(super) fn begin(&self) {
        self.log.lock().begin();
    }

    /// As after power-on, with its line to the GIC of a life; or, at its end, to none.
    pub(super) fn reset(&self, line: Option<Arc<Gic>>) {
        if line.is_some() {
            self.begin();
        }
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
        let (mut at, to) = (0, self.log.lock().end());
        let mut piece = [0; PIECE];
        loop {
            let (next, count) = self.log.lock().copy(at, to, &mut piece);
            if count == 0 {
                break;
            }
            console::bytes(&piece[..count]);
            threads::preemption_point();
            at = next;
        }
    }

    /// Whether the guest has said `text`, in its present or last life, and not too long ago.
    pub(super) fn has_said(&self, text: &[u8]) -> bool {
        let mut at = 0;
        loop {
            let search = self.log.lock().search(at, text);
            match search {
                Search::Found => return true,
                Search::Missing => return false,
                Search::Onward(next) => at = next,
            }
            threads::preemption_point();
        }
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
