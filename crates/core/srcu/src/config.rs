//! How a domain is built.

use alloc::sync::Arc;

use crate::limits::Limits;
use crate::worker::Worker;

/// Whose grace periods a domain has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// Grace periods as urgent as the most urgent party waiting for them.
    #[default]
    Urgent,
    /// Grace periods as in Linux v6.18, for comparison: see [`linux`](crate::linux). Needs a [`Config::worker`].
    ///
    /// Such a domain has no bounds, as Linux has none. It counts up to 2^24 callbacks and 1 TiB; a call that defers
    /// more, or the drop of a [`Retired`](crate::Retired) that does, panics, and leaks what was to be deferred.
    Linux {
        /// Jiffies a second, `CONFIG_HZ`.
        hz: u32,
    },
}

/// What a domain is built from. The default: bounded as [`Limits::default`] says, no worker, 128 callbacks run by
/// the thread that waits.
#[derive(Clone, Debug)]
pub struct Config {
    /// How much may be deferred.
    pub limits: Limits,
    /// Whose grace periods the domain has.
    pub pace: Pace,
    /// How many callbacks a thread that waits for a grace period, or defers past the soft bound, runs itself at most.
    /// Freeing a few where the memory was last used is cheaper for all than having another processor free them; each
    /// may take long, and is not the caller's.
    ///
    /// 0: none, as in liburcu and Linux. (Two things remain: at the hard bound a [`call`](crate::Srcu::call) runs its
    /// own, and a [`barrier`](crate::Srcu::barrier) runs all that is left.) Then there has to be a worker, or a tick.
    pub run_inline: usize,
    /// The worker that runs what is deferred and that no caller waits for. Without one, callers that synchronise run
    /// it, and [`Srcu::tick`](crate::Srcu::tick) does. It has to wait and be woken in the same world as the domain, and
    /// to be turned for as long: one whose thread has ended runs nothing.
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
