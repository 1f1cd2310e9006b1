//! The boot: from the boot loader to the monitor.

use mayfly_hypervisor::board::Board;

use crate::bare::monitor;
use crate::bare::processor::{power_off, serial};
use crate::bare::threads::console::say;
use crate::bare::threads::{self, Name};

#[cfg(target_arch = "aarch64")]
mod arm64;
mod arriving;
mod memory;
mod panic;
#[cfg(target_arch = "x86_64")]
mod x86;

/// Starts the monitor on a machine that is prepared, and becomes the idle thread of this processor.
fn run(board: Board) -> ! {
    serial::listen();
    threads::interrupts::look();
    if let Err(error) = threads::spawn(Name::new("the monitor"), move || monitor::main(&board)) {
        say!("mayfly: the monitor does not start: {error}");
        power_off()
    }
    threads::idle()
}
