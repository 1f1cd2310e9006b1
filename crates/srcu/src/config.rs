//! How a domain is built.

use alloc::sync::Arc;
use core::time::Duration;

use crate::Worker;

/// How much may be deferred at a time. A number of callbacks and a number of bytes; whichever is reached first counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Past this many callbacks, a `call` hurries the grace period.
    pub soft_count: usize,
    /// Past this many bytes, a `call` hurries the grace period.
    pub soft_bytes: usize,
    /// Never more callbacks than this are deferred.
    pub hard_count: usize,
    /// Never more bytes than this are deferred.
    pub hard_bytes: usize,
}

impl Default for Limits {
    /// Hurries past 1024 callbacks or 1 MiB; never more than 16384 callbacks or 16 MiB.
    fn default() -> Self {
        Self { soft_count: 1 << 10, soft_bytes: 1 << 20, hard_count: 1 << 14, hard_bytes: 16 << 20 }
    }
}

/// Whose grace periods a domain has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// Grace periods as urgent as the most urgent party waiting for them.
    #[default]
    Urgent,
    /// Grace periods as in Linux v6.18, for comparison: see [`linux`](crate::linux). Needs a [`Config::worker`].
    Linux {
        /// Jiffies a second, `CONFIG_HZ`.
        hz: u32,
    },
}

/// What a domain is built from. The default: bounded as [`Limits::default`] says, no worker.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// How much may be deferred.
    pub limits: Limits,
    /// Whose grace periods the domain has.
    pub pace: Pace,
    /// Who runs what is deferred and nobody waits for. Without one, those who synchronise run it, and
    /// [`Srcu::tick`](crate::Srcu::tick) does.
    pub worker: Option<Arc<Worker>>,
}

/// How long a worker leaves a deferred callback alone, hoping that somebody's grace period completes it for free.
pub(crate) const LAZY: Duration = Duration::from_millis(10);
