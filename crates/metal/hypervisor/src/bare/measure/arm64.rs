//! The counters of retired instructions on arm64, and the guest's code.

use mayfly_arm64::pmu::NoCounters;
use mayfly_hypervisor::arm64::layout::{DISTRIBUTOR, REDISTRIBUTORS};
use mayfly_lifecycle_steps::guest::arm64;

use crate::bare::processor::timer;

pub(super) use mayfly_arm64::identity::Identity;
pub(super) use mayfly_arm64::pmu::{Count, Retired};

/// Begins to count.
///
/// # Errors
///
/// What the processor has not.
pub(super) fn begin() -> Result<Retired, &'static str> {
    Retired::begin().map_err(NoCounters::why)
}

/// The same, of each level apart.
///
/// # Errors
///
/// As [`begin`].
pub(super) fn begin_by_level() -> Result<Retired, &'static str> {
    begin()
}

/// The time from one moment to another, in ticks, in nanoseconds.
pub(super) fn between(earlier: u64, later: u64) -> u64 {
    timer::instant(later).as_nanos() - timer::instant(earlier).as_nanos()
}

/// Writes what the guest begins with.
///
/// # Errors
///
/// That of `write`.
pub(super) fn install<E>(write: impl FnMut(u64, &[u8]) -> Result<(), E>) -> Result<(), E> {
    arm64::install(DISTRIBUTOR, REDISTRIBUTORS, write)
}
