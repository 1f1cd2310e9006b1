//! Waiting for other threads, as long as patience lasts.

use std::fmt::Display;
use std::sync::Arc;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure};

/// How long anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `done`, which is asked again after every `pause`. Fails with it; or with `late`, when it has not been so
/// for [`PATIENCE`].
pub(crate) fn until(
    pause: Duration,
    late: impl Display,
    mut done: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let start = Instant::now();
    while !done()? {
        ensure!(start.elapsed() < PATIENCE, "{late}");
        sleep(pause);
    }
    Ok(())
}

/// What a vCPU's thread came to, which has been joined.
pub(crate) fn ended<T>(joined: thread::Result<anyhow::Result<T>>) -> anyhow::Result<T> {
    joined.map_err(|_| anyhow!("a vCPU's thread has panicked"))?
}

/// Whether each of `all` has counted two more since this was called: what it was at then may have been half done, what
/// came after that was not.
pub(crate) fn two_more<T>(all: &[Arc<T>], count: impl Fn(&T) -> u64) -> impl Fn() -> bool {
    let before: Vec<u64> = all.iter().map(|one| count(one)).collect();
    move || all.iter().zip(&before).all(|(one, before)| count(one) >= before + 2)
}
