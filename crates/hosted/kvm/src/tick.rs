//! How long a tick of the running kernel is.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_getres};

/// Ticks a second of the running kernel: its `CONFIG_HZ`. `None` where it cannot be told.
///
/// The resolution of `CLOCK_MONOTONIC_COARSE` is the tick's length: `posix_get_coarse_res` in
/// `kernel/time/posix-timers.c` returns `KTIME_LOW_RES`, which is `TICK_NSEC`. That needs no configuration
/// file, which many systems do not have, and cannot belong to another kernel than the one that runs.
pub fn hz() -> Option<u32> {
    hz_of_tick(clock_getres(ClockId::MonotonicCoarse))
}

/// The length of a tick. Where it cannot be told it is taken for 10 ms, which is the longest that is usual: what is
/// judged in ticks is then not called a wait too soon.
pub(crate) fn tick() -> Duration {
    hz().map_or(Duration::from_millis(10), |hz| Duration::from_secs(1) / hz)
}

/// Ticks a second from the length of one, which the kernel rounds to a nanosecond. A system that only
/// imitates Linux may give the clock any resolution; one that is no plausible tick says nothing.
fn hz_of_tick(tick: Timespec) -> Option<u32> {
    let nanoseconds = u32::try_from(tick.tv_nsec).ok().filter(|_| tick.tv_sec == 0)?;
    let hz = (1_000_000_000 + nanoseconds / 2).checked_div(nanoseconds)?;
    (20..=1200).contains(&hz).then_some(hz)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tick(seconds: i64, nanoseconds: i64) -> Timespec {
        Timespec { tv_sec: seconds, tv_nsec: nanoseconds }
    }

    #[test]
    fn the_tick_of_every_usual_kernel_gives_its_hz() {
        for hz in [24, 48, 64, 100, 128, 250, 256, 300, 1000, 1024, 1200] {
            let tick_nsec = (1_000_000_000 + hz / 2) / hz;
            assert_eq!(hz_of_tick(tick(0, tick_nsec)), u32::try_from(hz).ok());
        }
    }

    #[test]
    fn a_resolution_that_is_no_tick_says_nothing() {
        for resolution in [tick(0, 0), tick(0, 1), tick(1, 4_000_000), tick(0, 999_999_999)] {
            assert_eq!(hz_of_tick(resolution), None);
        }
    }
}
