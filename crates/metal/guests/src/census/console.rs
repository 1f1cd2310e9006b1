//! What the guest prints.

use core::fmt::{self, Write};
use core::ptr::with_exposed_provenance_mut;

const UART: usize = 0x0900_0000;

pub(crate) struct Console;

impl Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            // SAFETY: the data register of the PL011 that every guest has.
            unsafe { with_exposed_provenance_mut::<u32>(UART).write_volatile(byte.into()) };
        }
        Ok(())
    }
}

macro_rules! say {
    ($($text:tt)*) => {{
        use core::fmt::Write;
        let console = &mut $crate::console::Console;
        let _ = console.write_fmt(format_args!($($text)*)).and_then(|()| console.write_str("\r\n"));
    }};
}
pub(crate) use say;

/// Powers the VM off.
pub(crate) fn power_off() -> ! {
    loop {
        // SAFETY: PSCI's SYSTEM_OFF.
        unsafe { core::arch::asm!("hvc #0", inout("x0") 0x8400_0008_u64 => _, options(nostack)) };
    }
}

/// An exception that nothing of the census takes.
pub(crate) extern "C" fn lost(syndrome: u64, address: u64) -> ! {
    say!("guest: FAILED: an exception at {address:#x}, ESR_EL1 {syndrome:#x}");
    power_off()
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    say!("guest: FAILED: {info}");
    power_off()
}
