//! The console: lines that the program prints, and bytes that were typed. Interrupts are looked for after each line, and
//! while the port is busy.

use core::fmt;
use core::sync::atomic::Ordering;

use mayfly_hypervisor::line::PIECE;

use super::interrupts::look;
use super::sleep::wait;
use super::waking::wake;
use crate::bare::processor::{serial, timer};

/// The next byte that was typed. Waits for it until `deadline` (in ticks) at the latest, or until there is something else to
/// do; [`nudge`] has it look.
pub(crate) fn next_typed(deadline: u64, has_other: impl Fn() -> bool) -> Option<u8> {
    loop {
        let seen = serial::TYPING.load(Ordering::Acquire);
        if let Some(byte) = serial::typed() {
            return Some(byte);
        }
        if timer::ticks() >= deadline || has_other() {
            return None;
        }
        wait(&serial::TYPING, seen, deadline);
    }
}

/// There is something else to do for the thread that waits for what is typed.
pub(crate) fn nudge() {
    serial::TYPING.fetch_add(1, Ordering::Release);
    wake(&serial::TYPING);
}

/// Prints bytes as they are. Many bytes are printed a line at a time: lines of others may stand between them.
pub(crate) fn bytes(bytes: &[u8]) {
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        serial::bytes(line, look);
        if bytes.len() > PIECE {
            look();
        }
    }
}

/// Prints a line.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    serial::line(text, look);
    look();
}

/// Prints a line.
macro_rules! say {
    ($($text:tt)*) => { $crate::bare::threads::console::line(format_args!($($text)*)) };
}
pub(crate) use say;
