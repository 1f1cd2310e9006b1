//! The counters of retired instructions on arm64, and the addresses of the guest's machine.

use mayfly_arm64::pmu::NoCounters;

pub(super) use mayfly_arm64::identity::Identity;
pub(super) use mayfly_arm64::pmu::{Count, Retired};
pub(super) use mayfly_hypervisor::arm64::layout::{DISTRIBUTOR, REDISTRIBUTORS};

/// Begins to count.
///
/// # Errors
///
/// What the processor has not.
pub(super) fn begin() -> Result<Retired, &'static str> {
    Retired::begin().map_err(NoCounters::why)
}
