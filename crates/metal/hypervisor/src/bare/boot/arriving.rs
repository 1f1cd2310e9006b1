//! How processors other than the first come up, on every architecture, when the first one has started them.

use core::sync::atomic::{AtomicU32, Ordering};

use mayfly_hypervisor::arrival::Arrival;

use crate::bare::processor::spin::relax;
use crate::bare::processor::{cpus, shared};
use crate::bare::threads;

/// How many processors have come, the first one included.
pub(super) static ARRIVED: AtomicU32 = AtomicU32::new(1);

/// Counts this processor as up, of which everything is prepared but its thread.
pub(super) fn is_up() {
    threads::adopt();
    cpus::is_up();
}

/// Waits until all processors that have come are up.
pub(super) fn wait_for_others() {
    while cpus::count() < ARRIVED.load(Ordering::Relaxed) {
        relax();
    }
}

/// What such a processor does first in Rust. `arrive` prepares what it needs to say what it is, and returns whether it can be
/// used. When it is known what all can do, `prepare` prepares the rest, and counts it as up. Where nobody waits for it, or it
/// cannot be used, it stops.
pub(super) fn come_up(
    arrival: &Arrival,
    arrive: impl FnOnce() -> bool,
    prepare: fn(),
    stop: fn() -> !,
) -> ! {
    if !arrival.is_awaited() {
        stop()
    }
    let is_ready = arrive();
    if !arrival.finish(is_ready) {
        stop()
    }
    while !shared::is_set() {
        relax();
    }
    prepare();
    threads::idle()
}
