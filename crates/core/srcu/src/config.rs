//! How a domain is built.

use alloc::sync::Arc;
use core::time::Duration;

use crate::Worker;

/// How much may be deferred at a time. A number of callbacks and a number of bytes; whichever is reached first counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Past this many callbacks, every 128th `call` hurries the grace period; where one runs less
    /// ([`Config::run_inline`]), at least as often as that.
    pub soft_count: usize,
    /// Past this many bytes, a `call` hurries the grace period for each further sixteenth of them.
    pub soft_bytes: usize,
    /// Never more callbacks than this are deferred, nor more than 16,777,215.
    pub hard_count: usize,
    /// Never more bytes than this are deferred, nor more than 1 TiB.
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

/// What a domain is built from. The default: bounded as [`Limits::default`] says, no worker, 128 callbacks run by
/// whoever waits.
#[derive(Clone, Debug)]
pub struct Config {
    /// How much may be deferred.
    pub limits: Limits,
    /// Whose grace periods the domain has.
    pub pace: Pace,
    /// How many callbacks whoever waits for a grace period, or defers past the soft bound, runs itself at most. Freeing
    /// a few where the memory was last used is cheaper for all than having another processor free them; each may take
    /// long, and is not the caller's.
    ///
    /// 0: none, as in liburcu and Linux. (Two things remain: at the hard bound a [`call`](crate::Srcu::call) runs its
    /// own, and a [`barrier`](crate::Srcu::barrier) runs all that is left.) Then there has to be a worker, or a tick.
    pub run_inline: usize,
    /// Who runs what is deferred and nobody waits for. Without one, those who synchronise run it, and
    /// [`Srcu::tick`](crate::Srcu::tick) does. It has to wait and be woken in the same world as the domain,
    /// and to be turned for as long: one whose thread has ended runs nothing.
    pub worker: Option<Arc<Worker>>,
    /// Whether the embedder promises to call [`Srcu::tick`](crate::Srcu::tick) now and then.
    pub ticks: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            pace: Pace::default(),
            run_inline: RUN_INLINE,
            worker: None,
            ticks: false,
        }
    }
}

/// The default of [`Config::run_inline`].
pub(crate) const RUN_INLINE: usize = 128;

/// How long a worker leaves a deferred callback alone, hoping that somebody's grace period completes it for free.
pub(crate) const LAZY: Duration = Duration::from_millis(10);
