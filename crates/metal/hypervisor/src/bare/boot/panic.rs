//! The end of the program by a panic.

use core::panic::PanicInfo;

use crate::bare::processor::serial::line_without_lock;
use crate::bare::processor::{cpu, power_off, timer};

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    line_without_lock(format_args!("mayfly: CPU {} at {}: {info}", cpu::number(), timer::ticks()));
    power_off()
}
