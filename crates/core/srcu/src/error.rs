//! What a domain cannot be built without.

use mayfly_platform::memory::OutOfMemory;

/// Why a domain cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// No memory for the domain.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// The grace periods of [`Pace::Linux`](crate::Pace::Linux) are run by a worker, and there is none.
    #[error("a domain paced as Linux needs a worker")]
    NoWorker,
    /// [`Pace::Linux`](crate::Pace::Linux) with no jiffies a second.
    #[error("a domain paced as Linux needs at least one jiffy a second")]
    NoJiffies,
    /// Nobody runs callbacks: those who wait are not to ([`Config::run_inline`](crate::Config::run_inline) is 0), there is no worker, and nobody
    /// has said that he ticks ([`Config::ticks`](crate::Config::ticks)).
    #[error("nobody would run callbacks: neither waiters, nor a worker, nor a tick")]
    NobodyRuns,
    /// The worker waits and is woken in another world ([`Platform::identity`](mayfly_platform::Platform::identity)).
    #[error("the worker has another platform")]
    WorkerElsewhere,
}
