//! How often, and how much: the same on both sides.

/// Bytes that are mapped in the VMs whose slot is deleted, or that are destroyed with it.
pub const BYTES: u64 = 256 << 20;
/// Bytes that are mapped when the vCPUs turn their caches on, in blocks of 2 MiB.
pub const CACHED_BYTES: u64 = 64 << 20;
/// vCPUs that turn their caches on, one after the other.
pub const CACHED_VCPUS: u32 = 4;
/// How often a guest does what is small, in one sample.
pub const TIMES: u32 = 64;
/// Milliseconds that are waited for what is done in the background.
pub const SETTLE_MILLISECONDS: u64 = 100;
/// Lives of a small VM for each of the larger ones.
pub const SMALL_LIVES: u32 = 5;
/// Rounds, where nothing else is said: odd, so that there is a median among them.
pub const ROUNDS: u32 = 3;
/// The most rounds.
pub const MOST_ROUNDS: u32 = 100;
