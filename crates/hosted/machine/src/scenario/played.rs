//! How a scenario went.

use std::error::Error;
use std::fmt;

use crate::Mismatch;
use crate::cache::LineCounts;

/// What kept a scenario from being played.
pub type Failure = Box<dyn Error + Send + Sync>;

/// How a scenario went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Played {
    /// Reads whose value the guest knew.
    pub reads: u64,
    /// Those that gave another; the first of each stay that a vCPU had.
    pub stale: Vec<Stale>,
    /// What was maintained.
    pub lines: LineCounts,
}

/// A read that did not give the last value written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale {
    /// The vCPU that read; none, where the host did.
    pub vcpu: Option<u32>,
    /// What.
    pub mismatch: Mismatch,
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.vcpu {
            Some(vcpu) => write!(f, "vCPU {vcpu} read {}", self.mismatch),
            None => write!(f, "the host read {}", self.mismatch),
        }
    }
}
