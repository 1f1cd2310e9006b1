//! Numbers of times and sizes, which are the same on both sides.

/// Bytes that are mapped in the slot of a VM of [`large`](crate::large).
pub const BYTES: u64 = 256 << 20;
/// Bytes that are mapped when the vCPUs turn their caches on, in blocks of 2 MiB.
pub const CACHED_BYTES: u64 = 64 << 20;
/// vCPUs that turn their caches on, one after the other.
pub const CACHED_VCPUS: u32 = 4;
/// How often a guest does a short step, in one sample.
pub const TIMES: u32 = 64;
/// Milliseconds that the caller waits for work in the background.
pub const SETTLE_MILLISECONDS: u64 = 100;
/// How many such waits there are until what was deferred is over: more than a second.
pub const QUIET: u64 = 1000 / SETTLE_MILLISECONDS + 1;
/// Lifecycles of a small VM for each of the larger ones.
pub const SMALL_LIVES: u32 = 5;
/// The default number of rounds: odd, so that one of the samples is the median.
pub const ROUNDS: u32 = 3;
/// The most rounds.
pub const MOST_ROUNDS: u32 = 100;
/// The default number of rounds of a dirty log, which take longer.
pub const LOGGED_ROUNDS: u32 = 1;
/// Bytes of memory of a guest that is forked.
pub const FORKED_BYTES: u64 = 64 << 20;
