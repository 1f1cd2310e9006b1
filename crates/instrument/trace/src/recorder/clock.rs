//! The time of a trace.

use rustix::time::{ClockId, clock_gettime};

/// Counts nanoseconds from when it was made; a copy, and one of a forked process, counts from the same moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    zero: u64,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self { zero: monotonic() }
    }

    pub(super) fn now(self) -> u64 {
        self.relative(monotonic())
    }

    /// A time of the kernel's clock, counted from that moment.
    pub(super) fn relative(self, monotonic: u64) -> u64 {
        monotonic.saturating_sub(self.zero)
    }

    /// The other way round.
    pub(super) fn absolute(self, time: u64) -> u64 {
        time.saturating_add(self.zero)
    }
}

/// Nanoseconds of `CLOCK_MONOTONIC`.
fn monotonic() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}
