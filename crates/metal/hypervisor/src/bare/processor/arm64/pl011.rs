//! The machine's serial port: a PL011, written a byte at a time, with an interrupt for each byte that is typed.

use core::ptr::with_exposed_provenance_mut;
use core::sync::atomic::{AtomicUsize, Ordering};

use mayfly_hypervisor::line::Port;

const DATA: usize = 0;
const FLAGS: usize = 0x18;
const MASK: usize = 0x38;
const CLEAR: usize = 0x44;
const RECEIVE_EMPTY: u32 = 1 << 4;
const TRANSMIT_FULL: u32 = 1 << 5;
/// Receive, and receive timeout.
const RECEIVED: u32 = 1 << 4 | 1 << 6;

/// The address of its registers; 0 until it is known.
static BASE: AtomicUsize = AtomicUsize::new(0);

fn register(offset: usize) -> Option<*mut u32> {
    let base = BASE.load(Ordering::Relaxed);
    (base != 0).then(|| with_exposed_provenance_mut(base + offset))
}

fn read(offset: usize) -> Option<u32> {
    // SAFETY: a register of the serial port, as `use_at` was promised.
    register(offset).map(|register| unsafe { register.read_volatile() })
}

fn write(offset: usize, value: u32) {
    if let Some(register) = register(offset) {
        // SAFETY: as above.
        unsafe { register.write_volatile(value) };
    }
}

/// Uses the PL011 at `base` from now on.
///
/// # Safety
///
/// There is one, mapped as device memory, and nothing else uses it.
pub(crate) unsafe fn use_at(base: usize) {
    BASE.store(base, Ordering::Relaxed);
}

/// Turns the interrupt for received bytes on.
pub(crate) fn listen() {
    write(CLEAR, 0x7ff);
    write(MASK, RECEIVED);
}

/// The port, to be written to. Without one, bytes are lost.
pub(crate) struct SerialPort;

impl Port for SerialPort {
    fn take(&mut self, byte: u8) -> bool {
        let is_full = read(FLAGS).is_some_and(|flags| flags & TRANSMIT_FULL != 0);
        if !is_full {
            write(DATA, u32::from(byte));
        }
        !is_full
    }
}

/// The next byte that was received, if there is one.
pub(crate) fn received() -> Option<u8> {
    let flags = read(FLAGS)?;
    if flags & RECEIVE_EMPTY != 0 {
        return None;
    }
    read(DATA).map(|data| data as u8)
}
