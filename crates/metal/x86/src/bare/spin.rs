//! How a processor waits: for another one, or for an interrupt.

/// Says that this processor waits for another.
#[inline]
pub fn relax() {
    core::hint::spin_loop();
}

/// Waits for an interrupt; one that has come already ends it.
pub fn wait_for_interrupt() {
    super::apic::wait();
}
