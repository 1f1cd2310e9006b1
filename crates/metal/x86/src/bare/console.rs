//! The first UART of a PC, a 16550: its transmitter alone, as the firmware has left it.

use core::fmt::{self, Write};

use super::cpu::{inb, outb};

const DATA: u16 = 0x3f8;
const LINE_STATUS: u16 = 0x3fd;
const IS_EMPTY: u8 = 1 << 5;

/// How often the line's status is read for a byte: a UART that is not there takes nothing, and is not waited for.
const PATIENCE: u32 = 100_000;

pub(super) struct Console;

impl Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(put);
        Ok(())
    }
}

/// A byte, when the UART takes one.
pub(super) fn put(byte: u8) {
    for _ in 0..PATIENCE {
        if inb(LINE_STATUS) & IS_EMPTY != 0 {
            break;
        }
    }
    outb(DATA, byte);
}

/// A line of Mayfly's own.
macro_rules! say {
    ($($argument:tt)*) => {{
        use core::fmt::Write as _;
        // Writing to this console is never an error.
        let _ = write!($crate::bare::console::Console, "mayfly: {}\r\n", format_args!($($argument)*));
    }};
}
pub(super) use say;
