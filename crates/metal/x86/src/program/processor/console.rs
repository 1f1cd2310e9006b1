//! The first UART of a PC, a 16550, as the firmware has left it.

use core::fmt::{self, Write};

use x86_64::instructions::port::Port;

const BASE: u16 = 0x3f8;
const DATA: u16 = 0;
const LINE_STATUS: u16 = 5;
const IS_READY: u8 = 1 << 0;
const IS_EMPTY: u8 = 1 << 5;

/// How often the line's status is read for a byte: a UART that is not there takes nothing, and is not waited for.
const PATIENCE: u32 = 100_000;

pub(crate) struct Console;

impl Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(put);
        Ok(())
    }
}

fn read(register: u16) -> u8 {
    // SAFETY: a register of the UART, which changes no memory.
    unsafe { Port::<u8>::new(BASE + register).read() }
}

/// A byte, when the UART takes one.
pub(crate) fn put(byte: u8) {
    for _ in 0..PATIENCE {
        if read(LINE_STATUS) & IS_EMPTY != 0 {
            break;
        }
    }
    // SAFETY: as above.
    unsafe { Port::<u8>::new(BASE + DATA).write(byte) }
}

/// A byte that was typed, if there is one. A UART that is not there reads as all ones, and has none.
pub(crate) fn typed() -> Option<u8> {
    let status = read(LINE_STATUS);
    (status != u8::MAX && status & IS_READY != 0).then(|| read(DATA))
}

/// A line of Mayfly's own.
macro_rules! say {
    ($($argument:tt)*) => {{
        use core::fmt::Write as _;
        // Writing to this console is never an error.
        let _ = write!($crate::program::processor::console::Console, "mayfly: {}\r\n", format_args!($($argument)*));
    }};
}
pub(crate) use say;
