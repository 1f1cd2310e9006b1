//! Waiting for other threads, as long as they make progress.

use std::fmt::Display;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure};

/// How long a wait lasts without any progress, before it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// How often a wait for something that takes microseconds looks.
pub(crate) const LOOK: Duration = Duration::from_micros(50);

/// The most that the time between two looks counts. A longer time means that the waiting thread was kept from its
/// processor, and the threads that it waits for may have been, too: the host is busy, or the process was stopped.
const GAP: Duration = Duration::from_millis(1);

/// What a look has found: the wait is over, or how far the other threads are.
///
/// How far they are is any number that changes while they make progress, and that stays the same as soon as one of them
/// makes none. So it is not how often a vCPU has run, but how often of the times that it has to run.
pub(crate) type Look = ControlFlow<(), u64>;

/// How long a thread has waited without progress.
#[derive(Debug)]
pub(crate) struct Patience {
    looked: Instant,
    progress: u64,
    in_vain: Duration,
}

impl Patience {
    pub(crate) fn new() -> Self {
        Self { looked: Instant::now(), progress: 0, in_vain: Duration::ZERO }
    }

    /// Whether to go on waiting; `progress` is how far the other threads are now.
    pub(crate) fn lasts(&mut self, progress: u64) -> bool {
        self.lasts_at(Instant::now(), progress)
    }

    fn lasts_at(&mut self, now: Instant, progress: u64) -> bool {
        self.in_vain = if progress == self.progress {
            self.in_vain + now.saturating_duration_since(self.looked).min(GAP)
        } else {
            Duration::ZERO
        };
        (self.looked, self.progress) = (now, progress);
        self.in_vain < PATIENCE
    }
}

/// Looks again after every `pause`, until `look` says that the wait is over. Fails if a look fails, or if there was no
/// progress for [`PATIENCE`]; the error then says `what` the thread waited for.
pub(crate) fn until(
    pause: Duration,
    what: impl Display,
    mut look: impl FnMut() -> anyhow::Result<Look>,
) -> anyhow::Result<()> {
    let mut patience = Patience::new();
    while let Look::Continue(progress) = look()? {
        ensure!(
            patience.lasts(progress),
            "no progress for {PATIENCE:?} while waiting until {what}"
        );
        sleep(pause);
    }
    Ok(())
}

/// The outcome of a vCPU's thread that has been joined.
pub(crate) fn ended<T>(joined: thread::Result<anyhow::Result<T>>) -> anyhow::Result<T> {
    joined.map_err(|_| anyhow!("a vCPU's thread has panicked"))?
}

/// Looks whether each of `all` has counted two more since this call. One is not enough: what a thread was doing at the call
/// may have been half done.
pub(crate) fn two_more<T>(all: &[Arc<T>], count: impl Fn(&T) -> u64) -> impl Fn() -> Look {
    let before: Vec<u64> = all.iter().map(|one| count(one)).collect();
    move || {
        let more = |(one, before): (&Arc<T>, &u64)| (count(one) - before).min(2);
        let more: u64 = all.iter().zip(&before).map(more).sum();
        if more == 2 * all.len() as u64 { Look::Break(()) } else { Look::Continue(more) }
    }
}

/// Waits until each of `all` has done, from its beginning to its end, one of what `count` counts.
pub(crate) fn all_run<T>(all: &[Arc<T>], count: impl Fn(&T) -> u64) -> anyhow::Result<()> {
    let all_have = two_more(all, count);
    until(LOOK, "all vCPUs have run", || Ok(all_have()))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Looks every `gap` for as long as `time`, at what `progress` says of each look; whether patience lasts.
    fn lasts(gap: Duration, time: Duration, progress: impl Fn(Duration) -> u64) -> bool {
        let mut patience = Patience::new();
        let start = patience.looked;
        let mut waited = Duration::ZERO;
        while waited < time {
            waited += gap;
            if !patience.lasts_at(start + waited, progress(waited)) {
                return false;
            }
        }
        true
    }

    #[test]
    fn what_comes_on_is_waited_for_however_long_it_takes() {
        let hour = Duration::from_secs(3600);
        assert!(lasts(GAP, hour, |waited| waited.as_secs() / 50));
        assert!(!lasts(GAP, hour, |_| 7));
    }

    #[test]
    fn a_host_that_keeps_the_waiter_waiting_does_not_use_its_patience_up() {
        let (second, hour) = (Duration::from_secs(1), Duration::from_secs(3600));
        assert!(lasts(second, hour, |_| 7));
    }

    #[test]
    fn who_has_counted_enough_hides_nobody_who_has_not() {
        let all: [Arc<AtomicU64>; 2] = [Arc::new(5.into()), Arc::new(9.into())];
        let look = two_more(&all, |count| count.load(Ordering::Relaxed));
        assert_eq!(look(), Look::Continue(0));
        all[0].store(100, Ordering::Relaxed);
        assert_eq!(look(), Look::Continue(2));
        all[0].store(1000, Ordering::Relaxed);
        assert_eq!(look(), Look::Continue(2), "of one that stands still");
        all[1].store(11, Ordering::Relaxed);
        assert_eq!(look(), Look::Break(()));
    }
}
