//! The UART, written to and no more. Each line begins with the name of the kernel.

use core::fmt::{self, Write};

use x86_64::instructions::port::Port;

pub(crate) struct Console;

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
        let _ = write!(
            $crate::kernel::console::Console, "{}: {}\r\n", $crate::NAME, format_args!($($argument)*)
        );
    }};
}
pub(crate) use say;
