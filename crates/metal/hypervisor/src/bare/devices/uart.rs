//! The console of a guest: a serial port whose other end is the machine's own console while the VM is in front. A guest
//! that has a virtio console, too, prints there as well, and has what is typed there while its driver works.

use alloc::string::String;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

use mayfly_devices::line::settle;
use mayfly_hypervisor::log::{Log, PIECE, Search};
use mayfly_hypervisor::plugged::Plugged;
use mayfly_vm::Device;

use super::arch::{SerialPort, UART_INTERRUPT, read_serial, write_serial};
use super::hvc::Hvc;
use super::lines::Lines;
use crate::bare::processor::spin::SpinLock;
use crate::bare::threads;
use crate::bare::threads::console;

/// What of a run a console leads to.
#[derive(Clone)]
pub(crate) struct Plug {
    pub(crate) lines: Arc<Lines>,
    /// Its virtio console, if it has one.
    pub(crate) hvc: Option<Arc<Hvc>>,
}

/// The console of a VM. It outlives the runs of its VM.
pub(crate) struct Uart {
    name: String,
    /// The serial port, and what it leads to of the present run.
    port: SpinLock<Plugged<SerialPort, Plug>>,
    is_in_front: AtomicBool,
    log: SpinLock<Log>,
}

impl Uart {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            port: SpinLock::new(Plugged::new(SerialPort::new())),
            is_in_front: AtomicBool::new(false),
            log: SpinLock::new(Log::default()),
        }
    }

    /// The VM's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A run is about to begin: the log of the last one is cleared.
    pub(crate) fn begin(&self) {
        self.log.lock().begin();
    }

    /// Has it be `device`. It leads to a run, or, when the run ends, to none. Returns what it was.
    pub(crate) fn reset(&self, plug: Option<Plug>, device: SerialPort) -> SerialPort {
        if plug.is_some() {
            self.begin();
        }
        let (was, old) = self.port.lock().reset(device, plug);
        drop(old);
        self.drive();
        was
    }

    /// Takes it off the run, whose threads have ended: nothing that is typed is taken until it leads there
    /// [again](Uart::go_on). Returns what it is.
    pub(crate) fn stop(&self) -> SerialPort {
        let (device, plug) = self.port.lock().stop();
        drop(plug);
        device
    }

    /// Has it lead to the run again, which goes on.
    pub(crate) fn go_on(&self, plug: Plug) {
        let old = self.port.lock().go_on(plug);
        drop(old);
        self.drive();
    }

    /// Shows what the guest prints, or not.
    pub(crate) fn set_in_front(&self, is_in_front: bool) {
        self.is_in_front.store(is_in_front, Ordering::Relaxed);
    }

    /// Gives the guest bytes that were typed. Returns how many it took: none while it leads to no run.
    pub(crate) fn typed(&self, bytes: &[u8]) -> usize {
        // Under the lock: the run is not frozen in between, and what was taken is kept with it.
        let taken = self.port.lock().take(|device, plug| {
            let by_hvc = plug.hvc.as_ref().and_then(|hvc| hvc.typed(bytes));
            by_hvc.unwrap_or_else(|| device.receive(bytes))
        });
        self.drive();
        taken
    }

    /// The guest prints bytes, [`PIECE`] of them at most.
    pub(super) fn print(&self, bytes: &[u8]) {
        self.log.lock().put(bytes);
        if self.is_in_front.load(Ordering::Relaxed) {
            console::bytes(bytes);
        }
    }

    /// Prints the last that the guest has printed.
    pub(crate) fn print_log(&self) {
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

    /// Whether the log of the present or last run has `text`.
    pub(crate) fn has_said(&self, text: &[u8]) -> bool {
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
        let lines = self.port.lock().plug().map(|plug| Arc::clone(&plug.lines));
        let Some(lines) = lines else { return };
        settle(|| self.port.lock().device().interrupt(), |level| lines.set(UART_INTERRUPT, level));
    }
}

impl Device for Uart {
    fn read(&self, _vcpu: u32, offset: u64, data: &mut [u8]) {
        read_serial(self.port.lock().device(), offset, data);
        self.drive();
    }

    fn write(&self, _vcpu: u32, offset: u64, data: &[u8]) {
        let sent = write_serial(self.port.lock().device(), offset, data);
        if let Some(byte) = sent {
            self.print(&[byte]);
        }
        self.drive();
    }
}
