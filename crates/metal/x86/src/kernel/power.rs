//! How a kernel ends that cannot go on.

use core::panic::PanicInfo;

use super::console::say;

/// It does nothing any more.
pub(crate) fn stop() -> ! {
    loop {
        x86_64::instructions::hlt();
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    say!("FAILED: {info}");
    stop()
}
