//! The serial port of the machine: what is printed, and what was typed.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU32, Ordering};

use super::arch::pl011 as port;
use super::spin::SpinLock;

pub(crate) use port::listen;

struct Serial;

static SERIAL: SpinLock<Serial> = SpinLock::new(Serial);

impl Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if byte == b'\n' {
                port::put(b'\r');
            }
            port::put(byte);
        }
        Ok(())
    }
}

/// Prints bytes as they are, without another's between them.
pub(crate) fn bytes(bytes: &[u8]) {
    let held = SERIAL.lock();
    for &byte in bytes {
        port::put(byte);
    }
    drop(held);
}

/// Prints a line.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    let mut serial = SERIAL.lock();
    let _ = serial.write_fmt(text).and_then(|()| serial.write_str("\n"));
}

/// Prints a line although another processor may be printing: a processor that panics waits for no lock.
pub(crate) fn line_without_lock(text: fmt::Arguments<'_>) {
    let mut serial = Serial;
    let _ = serial
        .write_str("\n")
        .and_then(|()| serial.write_fmt(text))
        .and_then(|()| serial.write_str("\n"));
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
