//! Moments on the platform's monotonic clock.

use core::ops::{Add, Sub};
use core::time::Duration;

/// Nanoseconds since the platform's fixed moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// Later than every other moment: "no deadline".
    pub const NEVER: Self = Self(u64::MAX);

    /// The moment `nanos` nanoseconds after the platform's fixed one.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the platform's fixed moment.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    /// Saturates at [`Instant::NEVER`].
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Instant {
    type Output = Duration;

    /// The time from `rhs` to `self`; zero where `rhs` is the later one.
    fn sub(self, rhs: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(rhs.0))
    }
}
