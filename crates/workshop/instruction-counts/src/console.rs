//! The output of the image, and its end.

use core::arch::asm;
use core::fmt::{self, Write};

/// The data register of the `virt` machine's PL011, which QEMU takes a byte from at any time.
const PL011: *mut u32 = 0x0900_0000 as *mut u32;

struct Serial;

impl Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            // SAFETY: the register is there, and is mapped as a device.
            unsafe { PL011.write_volatile(u32::from(byte)) };
        }
        Ok(())
    }
}

/// Prints a line.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    let _ = Serial.write_fmt(text).and_then(|()| Serial.write_str("\n"));
}

/// What QEMU was given as the program's arguments (semihosting: `SYS_GET_CMDLINE`): a row's name, or nothing.
pub(crate) fn argument(buffer: &mut [u8; 128]) -> &str {
    const SYS_GET_CMDLINE: u64 = 0x15;
    let mut block = [buffer.as_mut_ptr() as u64, buffer.len() as u64];
    let failed: u64;
    // SAFETY: writes the buffer, no further than it is long, and its length into the block.
    unsafe {
        asm!("hlt #0xf000", inlateout("x0") SYS_GET_CMDLINE => failed, in("x1") &raw mut block, options(nostack));
    }
    let length = if failed == 0 { block[1] as usize } else { 0 };
    core::str::from_utf8(&buffer[..length]).unwrap_or_default().trim_end_matches('\0')
}

/// Ends QEMU with `status` (semihosting: `SYS_EXIT`, "Semihosting for `AArch32` and `AArch64`").
pub(crate) fn exit(status: u64) -> ! {
    const SYS_EXIT: u64 = 0x18;
    const APPLICATION_EXIT: u64 = 0x2_0026;
    let block = [APPLICATION_EXIT, status];
    // SAFETY: reads the block, and does not come back.
    unsafe {
        asm!("hlt #0xf000", in("x0") SYS_EXIT, in("x1") &raw const block, options(nostack));
    }
    loop {
        core::hint::spin_loop();
    }
}
