//! How a processor waits: for another one, or for an interrupt.

use core::arch::asm;

/// Says that this processor waits for another: an emulator that runs one at a time then runs the other, which
/// `spin_loop`, an ISB here, does not tell it.
#[inline]
pub fn relax() {
    // SAFETY: a hint.
    unsafe { asm!("yield", options(nomem, nostack)) };
}

/// Waits for an interrupt; one that is pending ends it, masked or not.
pub fn wait_for_interrupt() {
    // SAFETY: stops the processor until something is pending, after its stores are seen.
    unsafe { asm!("dsb sy", "wfi", options(nostack)) };
}
