//! The errors of building a domain.

use mayfly_platform::memory::OutOfMemory;

/// Why a domain cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// No memory for the domain.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// The grace periods of [`Pace::Linux`](crate::Pace::Linux) are run by a worker, and there is none.
    #[error("a domain with `Pace::Linux` needs a worker: set `Config::worker`")]
    NoWorker,
    /// [`Pace::Linux`](crate::Pace::Linux) with no jiffies a second.
    #[error("`Pace::Linux` has `hz` 0, and needs at least one jiffy a second")]
    NoJiffies,
    /// No thread runs callbacks: waiters are not to ([`Config::run_inline`](crate::Config::run_inline) is 0), there is no
    /// worker, and the embedder has not promised to tick ([`Config::ticks`](crate::Config::ticks)).
    #[error(
        "no thread would run callbacks: set `Config::run_inline` above 0, or `Config::worker`, or `Config::ticks`"
    )]
    NobodyRuns,
    /// The worker waits and is woken in another world ([`Platform::identity`](mayfly_platform::Platform::identity)).
    #[error("the worker has another platform than the domain: build both on one platform")]
    WorkerElsewhere,
}
