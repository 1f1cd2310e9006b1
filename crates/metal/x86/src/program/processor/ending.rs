//! How the program ends.

use x86_64::instructions::interrupts;
use x86_64::instructions::port::Port;

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Everything was as it is to be.
    Done = 0,
    /// This machine cannot run guests, or what it was given cannot be run.
    Unable = 1,
    Failed = 2,
}

/// QEMU's device for that.
const PORT: u16 = 0xf4;

/// Ends: by that device, if it is there, or by doing nothing any more.
pub(crate) fn end(ending: Ending) -> ! {
    interrupts::disable();
    // SAFETY: nothing has this port but that device.
    unsafe { Port::<u32>::new(PORT).write(ending as u32) }
    loop {
        x86_64::instructions::hlt();
    }
}
