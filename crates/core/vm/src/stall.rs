//! How long a vCPU's writes are held up by dirty logs.
//!
//! A write to a page that is write-protected for a log faults, and is handled in an exit. The vCPU times the handling, from
//! where it has found the slot until the write can be made: waits for an entry or for the host, splits and repetitions are
//! in it. What an unlogged write fault takes is no stall, so it is subtracted: the vCPU times one of [`SAMPLED`] of its
//! unlogged write faults in the same way, and takes the shortest of the latest. While it has timed none, all of a logged
//! fault counts.
//!
//! The vCPU alone writes the counters; anybody may read them.

use core::time::Duration;

use mayfly_platform::sync::{AtomicU64, CacheLine, Ordering};
use mayfly_platform::time::Instant;

/// One of so many unlogged write faults is timed: so that the others read no clock.
const SAMPLED: u32 = 16;

/// Of so many that were timed, the shortest counts until there are as many again.
const LATEST: u32 = 8;

/// What dirty logs have cost one vCPU, since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DirtyStall {
    /// Write faults in slots with a log.
    pub faults: u64,
    /// The time in their exits, beyond that of as many unlogged write faults.
    pub time: Duration,
    /// The longest of these stalls.
    pub longest: Duration,
}

/// The counters, which others may read.
pub(crate) struct Stalls(CacheLine<Counters>);

struct Counters {
    faults: AtomicU64,
    nanoseconds: AtomicU64,
    longest: AtomicU64,
}

impl Stalls {
    pub(crate) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self(CacheLine(Counters { faults: zero(), nanoseconds: zero(), longest: zero() }))
    }

    /// What they are at this moment; each for itself.
    pub(crate) fn read(&self) -> DirtyStall {
        let Counters { faults, nanoseconds, longest } = &*self.0;
        // Relaxed: they say nothing of other memory.
        let time = |counter: &AtomicU64| Duration::from_nanos(counter.load(Ordering::Relaxed));
        let faults = faults.load(Ordering::Relaxed);
        DirtyStall { faults, time: time(nanoseconds), longest: time(longest) }
    }

    /// Adds a stall. By the vCPU alone.
    fn add(&self, stall: u64) {
        let Counters { faults, nanoseconds, longest } = &*self.0;
        let add = |counter: &AtomicU64, more: u64| {
            let sum = counter.load(Ordering::Relaxed).saturating_add(more);
            counter.store(sum, Ordering::Relaxed);
        };
        add(faults, 1);
        add(nanoseconds, stall);
        if stall > longest.load(Ordering::Relaxed) {
            longest.store(stall, Ordering::Relaxed);
        }
    }
}

/// A vCPU's own: what its unlogged write faults take.
#[derive(Debug)]
pub(crate) struct Usual {
    /// Until the next is timed.
    until: u32,
    /// What they take, in nanoseconds; 0 where none was timed.
    known: u64,
    /// The shortest of those that were timed since that was found.
    shortest: u64,
    timed: u32,
}

/// A write fault that is timed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timed {
    begun: Instant,
    is_logged: bool,
}

impl Usual {
    pub(crate) fn new() -> Self {
        Self { until: 1, known: 0, shortest: u64::MAX, timed: 0 }
    }

    /// A write fault is going to be handled. `now` reads the clock.
    #[inline]
    pub(crate) fn begin(
        &mut self,
        is_logged: bool,
        now: impl FnOnce() -> Instant,
    ) -> Option<Timed> {
        if !is_logged {
            self.until -= 1;
            if self.until > 0 {
                return None;
            }
            self.until = SAMPLED;
        }
        Some(Timed { begun: now(), is_logged })
    }

    /// It was handled, and the write can be made.
    #[cold]
    pub(crate) fn end(&mut self, timed: Timed, now: Instant, stalls: &Stalls) {
        let took = u64::try_from((now - timed.begun).as_nanos()).unwrap_or(u64::MAX);
        if timed.is_logged {
            return stalls.add(took.saturating_sub(self.known));
        }
        self.shortest = self.shortest.min(took);
        self.timed += 1;
        if self.known == 0 || self.timed == LATEST {
            (self.known, self.shortest, self.timed) = (self.shortest, u64::MAX, 0);
        }
    }
}

#[cfg(all(test, not(any(mayfly_loom, mayfly_shuttle))))]
mod tests {
    use super::*;

    /// A fault of so many nanoseconds.
    fn fault(usual: &mut Usual, stalls: &Stalls, is_logged: bool, took: u64) {
        if let Some(timed) = usual.begin(is_logged, || Instant::from_nanos(1000)) {
            usual.end(timed, Instant::from_nanos(1000 + took), stalls);
        }
    }

    #[test]
    fn a_stall_is_what_is_beyond_an_unlogged_fault_and_nothing_below_that() {
        let (mut usual, stalls) = (Usual::new(), Stalls::new());
        fault(&mut usual, &stalls, true, 700);
        let first = DirtyStall {
            faults: 1,
            time: Duration::from_nanos(700),
            longest: Duration::from_nanos(700),
        };
        assert_eq!(stalls.read(), first, "nothing is known of others");
        fault(&mut usual, &stalls, false, 500);
        fault(&mut usual, &stalls, true, 800);
        fault(&mut usual, &stalls, true, 400);
        let third =
            DirtyStall { faults: 3, time: Duration::from_micros(1), longest: first.longest };
        assert_eq!(stalls.read(), third);
    }

    #[test]
    fn few_unlogged_faults_are_timed_and_the_shortest_of_the_latest_counts() {
        let (mut usual, stalls) = (Usual::new(), Stalls::new());
        let mut clocks = 0;
        for fault in 0..=SAMPLED * (LATEST + 1) {
            let took = if fault < SAMPLED { 100 } else { 300 + u64::from(fault) };
            let timed = usual.begin(false, || {
                clocks += 1;
                Instant::from_nanos(0)
            });
            if let Some(timed) = timed {
                usual.end(timed, Instant::from_nanos(took), &stalls);
            }
        }
        assert_eq!((clocks, usual.known), (LATEST + 2, 300 + u64::from(SAMPLED)));
        assert_eq!(stalls.read(), DirtyStall::default(), "none of them was logged");
    }
}
