//! The serial port of the machine: what is printed, and what was typed.
//!
//! A line is printed whole, and may take milliseconds ([`line`](mayfly_hypervisor::line)). The processor that prints it,
//! and each one that waits to print another, looks for interrupts meanwhile. It gives its thread no other processor, and
//! no handler of an interrupt prints. So each gets its turn.

use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};

use mayfly_hypervisor::line::{print, send};

use super::arch::port;
use super::spin::{SpinLock, relax};

use port::SerialPort;
pub(crate) use port::listen;

/// Held while a line is printed.
static SERIAL: SpinLock<SerialPort> = SpinLock::new(SerialPort);

/// Prints bytes as they are, without another's between them. Calls `look` while it waits for the port, or for others.
pub(crate) fn bytes(bytes: &[u8], look: fn()) {
    send(&mut *SERIAL.lock_with(|| wait(look)), bytes, || wait(look));
}

/// Prints a line. Calls `look` while it waits for the port, or for others, and now and then while it prints.
pub(crate) fn line(text: fmt::Arguments<'_>, look: fn()) {
    print(&mut *SERIAL.lock_with(|| wait(look)), text, || wait(look));
}

/// Prints a line although another processor may be printing: a processor that panics waits for no lock, and looks for
/// no interrupts.
pub(crate) fn line_without_lock(text: fmt::Arguments<'_>) {
    send(&mut SerialPort, b"\r\n", relax);
    print(&mut SerialPort, text, relax);
}

fn wait(look: fn()) {
    look();
    relax();
}

/// Bytes that were typed and not taken yet. Bytes that come when it is full are lost.
struct Typed {
    bytes: [u8; 256],
    first: usize,
    count: usize,
}

static TYPED: SpinLock<Typed> = SpinLock::new(Typed { bytes: [0; 256], first: 0, count: 0 });

/// Changes when something was typed.
pub(crate) static TYPING: AtomicU32 = AtomicU32::new(0);

/// Takes what was typed from the hardware. The caller then wakes those that wait for [`TYPING`].
pub(crate) fn receive() {
    let mut typed = TYPED.lock();
    while let Some(byte) = port::received() {
        if typed.count < typed.bytes.len() {
            let at = (typed.first + typed.count) % typed.bytes.len();
            typed.bytes[at] = byte;
            typed.count += 1;
        }
    }
    drop(typed);
    TYPING.fetch_add(1, Ordering::Release);
}

/// The next byte that was typed, if there is one.
pub(crate) fn typed() -> Option<u8> {
    let mut typed = TYPED.lock();
    if typed.count == 0 {
        return None;
    }
    let byte = typed.bytes[typed.first];
    typed.first = (typed.first + 1) % typed.bytes.len();
    typed.count -= 1;
    Some(byte)
}
