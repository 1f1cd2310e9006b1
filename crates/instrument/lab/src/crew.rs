//! Starts the threads of vCPUs, which run until they are told to stop.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use anyhow::Context;

/// What failed, if a thread cannot be started.
pub(crate) const WHAT: &str = "starting a vCPU's thread";

/// A vCPU's thread, to be started.
pub(crate) fn vcpu_thread() -> Builder {
    Builder::new().name("vcpu".into())
}

/// Starts a thread for each of `all`, which ends soon after `ends` is set.
///
/// # Errors
///
/// Where one cannot be had, for a limit of the process or of its cgroup.
pub(crate) fn start<'scope, T, W>(
    scope: &'scope Scope<'scope, '_>,
    all: impl IntoIterator<Item = W>,
    ends: &AtomicBool,
) -> anyhow::Result<Vec<ScopedJoinHandle<'scope, T>>>
where
    T: Send + 'scope,
    W: FnOnce() -> T + Send + 'scope,
{
    all_or_end(all.into_iter().map(|work| vcpu_thread().spawn_scoped(scope, work)), ends)
}

/// All that were started; where one was not, the others are told to end: their scope waits for them.
fn all_or_end<H>(
    started: impl Iterator<Item = io::Result<H>>,
    ends: &AtomicBool,
) -> anyhow::Result<Vec<H>> {
    let all: io::Result<_> = started.collect();
    all.inspect_err(|_| ends.store(true, Ordering::Relaxed)).context(WHAT)
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::thread::{scope, sleep};
    use std::time::Duration;

    use super::*;

    /// Runs until it is told to end; whether it was, before nobody would wait any longer.
    fn was_told(ends: &AtomicBool) -> bool {
        (0..60_000).any(|_| {
            sleep(Duration::from_millis(1));
            ends.load(Ordering::Relaxed)
        })
    }

    #[test]
    fn where_one_thread_cannot_be_had_those_that_run_are_told_to_end() {
        let ends = AtomicBool::new(false);
        let told = AtomicBool::new(false);
        let error = scope(|scope| {
            let first = vcpu_thread().spawn_scoped(scope, || {
                told.store(was_told(&ends), Ordering::Relaxed);
            });
            all_or_end([first, Err(ErrorKind::WouldBlock.into())].into_iter(), &ends).unwrap_err()
        });
        assert_eq!(error.to_string(), WHAT);
        assert!(told.into_inner());
    }

    #[test]
    fn all_that_are_started_go_on_until_the_end() {
        let ends = AtomicBool::new(false);
        let told = scope(|scope| {
            let running = start(scope, [(); 3].map(|()| || was_told(&ends)), &ends).unwrap();
            assert!(!ends.swap(true, Ordering::Relaxed));
            running.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(told, [true; 3]);
    }
}
