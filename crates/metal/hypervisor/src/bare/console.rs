//! The console: a PL011, written a byte at a time, with interrupts for what is typed.

use core::fmt::{self, Write};
use core::ptr::with_exposed_provenance_mut;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use mayfly_arm64::spin::SpinLock;
use mayfly_arm64::timer;

use super::{threads, world};

const DATA: usize = 0;
const FLAGS: usize = 0x18;
const MASK: usize = 0x38;
const CLEAR: usize = 0x44;
const RECEIVE_EMPTY: u32 = 1 << 4;
const TRANSMIT_FULL: u32 = 1 << 5;
/// Receive, and receive timeout.
const RECEIVED: u32 = 1 << 4 | 1 << 6;

/// As many bytes are printed between two looks for interrupts.
const PART: usize = 256;

/// Where its registers are; 0 until that is known.
static BASE: AtomicUsize = AtomicUsize::new(0);

struct Serial;

static SERIAL: SpinLock<Serial> = SpinLock::new(Serial);

fn register(offset: usize) -> Option<*mut u32> {
    let base = BASE.load(Ordering::Relaxed);
    (base != 0).then(|| with_exposed_provenance_mut(base + offset))
}

fn read(offset: usize) -> u32 {
    // SAFETY: a register of the console's, which `use_at` was promised.
    register(offset).map_or(0, |register| unsafe { register.read_volatile() })
}

fn write(offset: usize, value: u32) {
    if let Some(register) = register(offset) {
        // SAFETY: as above.
        unsafe { register.write_volatile(value) };
    }
}

impl Serial {
    fn put(byte: u8) {
        while read(FLAGS) & TRANSMIT_FULL != 0 {
            mayfly_arm64::spin::relax();
        }
        write(DATA, u32::from(byte));
    }
}

impl Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if byte == b'\n' {
                Self::put(b'\r');
            }
            Self::put(byte);
        }
        Ok(())
    }
}

/// Has the console be the PL011 at `base`.
///
/// # Safety
///
/// There is one, mapped as device memory, and nobody else uses it.
pub(super) unsafe fn use_at(base: usize) {
    BASE.store(base, Ordering::Relaxed);
}

/// Has what is typed interrupt.
pub(super) fn listen() {
    write(CLEAR, 0x7ff);
    write(MASK, RECEIVED);
}

/// Bytes that were typed, and that nobody has taken yet; what comes when it is full is lost.
struct Typed {
    bytes: [u8; 256],
    first: usize,
    count: usize,
}

static TYPED: SpinLock<Typed> = SpinLock::new(Typed { bytes: [0; 256], first: 0, count: 0 });
/// Changes when something is typed.
static TYPING: AtomicU32 = AtomicU32::new(0);

/// Takes what was typed from the hardware: its interrupt's handler.
pub(super) fn take_typed() {
    let mut typed = TYPED.lock();
    while read(FLAGS) & RECEIVE_EMPTY == 0 {
        let byte = read(DATA) as u8;
        if typed.count < typed.bytes.len() {
            let at = (typed.first + typed.count) % typed.bytes.len();
            typed.bytes[at] = byte;
            typed.count += 1;
        }
    }
    drop(typed);
    TYPING.fetch_add(1, Ordering::Release);
    threads::wake(&TYPING);
}

/// The next byte that was typed, waited for until `deadline` (in ticks) at the latest.
pub(super) fn next_typed(deadline: u64) -> Option<u8> {
    loop {
        let seen = TYPING.load(Ordering::Acquire);
        let mut typed = TYPED.lock();
        if typed.count > 0 {
            let byte = typed.bytes[typed.first];
            typed.first = (typed.first + 1) % typed.bytes.len();
            typed.count -= 1;
            return Some(byte);
        }
        drop(typed);
        if timer::ticks() >= deadline {
            return None;
        }
        threads::wait(&TYPING, seen, deadline);
    }
}

/// Prints bytes as they are. Of many, a line at a time: what others print may stand between two.
pub(super) fn bytes(bytes: &[u8]) {
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        for part in line.chunks(PART) {
            let held = SERIAL.lock();
            for &byte in part {
                Serial::put(byte);
            }
            drop(held);
            if bytes.len() > PART {
                world::look();
            }
        }
    }
}

pub(super) fn line(text: fmt::Arguments<'_>) {
    let mut serial = SERIAL.lock();
    let _ = serial.write_fmt(text).and_then(|()| serial.write_str("\n"));
    drop(serial);
    world::look();
}

/// Prints a line though somebody else may be printing: the last words of a processor.
pub(super) fn last_words(text: fmt::Arguments<'_>) {
    let mut serial = Serial;
    let _ = serial
        .write_str("\n")
        .and_then(|()| serial.write_fmt(text))
        .and_then(|()| serial.write_str("\n"));
}

/// Prints a line.
macro_rules! say {
    ($($text:tt)*) => { $crate::bare::console::line(format_args!($($text)*)) };
}
pub(super) use say;
