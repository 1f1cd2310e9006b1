//! How much may be deferred.

/// How much may be deferred at a time. A number of callbacks and a number of bytes; whichever is reached first counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Past this many callbacks, every 128th `call` hurries the grace period; where one runs less
    /// ([`Config::run_inline`](crate::Config::run_inline)), at least as often as that.
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
