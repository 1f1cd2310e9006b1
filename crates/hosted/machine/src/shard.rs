//! Which of several copies of a thing a thread uses, so that threads do not meet at one.

use std::sync::atomic::{AtomicUsize, Ordering};

/// How many copies are worth keeping.
pub(crate) const SHARDS: usize = 32;

/// The present thread's copy: below [`SHARDS`], given out in turn.
pub(crate) fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static SHARD: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
    SHARD.with(|shard| *shard)
}
