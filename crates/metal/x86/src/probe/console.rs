//! The UART, written to and no more.

use core::fmt::{self, Write};

use x86_64::instructions::port::Port;

pub(super) struct Console;

impl Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            // SAFETY: the UART, which changes no memory.
            unsafe { Port::<u8>::new(0x3f8).write(byte) }
        }
        Ok(())
    }
}

macro_rules! say {
    ($($argument:tt)*) => {{
        use core::fmt::Write as _;
        let _ = write!($crate::bare::console::Console, "probe: {}\r\n", format_args!($($argument)*));
    }};
}
pub(super) use say;
