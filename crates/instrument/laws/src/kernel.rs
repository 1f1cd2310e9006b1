//! What a pair is measured in.

use std::error::Error;
use std::fmt;
use std::ops::RangeInclusive;

use crate::pair::{Dimension, Pair};

/// One call: what it took, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// On the clock.
    pub wall: u64,
    /// In which the calling thread ran.
    pub cpu: u64,
    /// In which it could have run, and others had the processors.
    pub queued: u64,
}

impl Taken {
    /// Without what reading the clocks takes, which is this much of any call.
    #[must_use]
    pub fn without(self, clocks: Self) -> Self {
        Self {
            wall: self.wall.saturating_sub(clocks.wall),
            cpu: self.cpu.saturating_sub(clocks.cpu),
            queued: self.queued,
        }
    }
}

/// A call, or what it needs, could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed(pub String);

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Failed {}

/// A kernel whose calls can be timed.
pub trait Kernel {
    /// From how many on, and up to how many, there can be. Neither this process's limits nor half of the host's memory is
    /// exceeded.
    ///
    /// # Errors
    /// There can be none, and why.
    fn range(&self, dimension: Dimension) -> Result<RangeInclusive<u64>, Failed>;

    /// Times the call once where there are `n`. All that it needs is made before and gone afterwards.
    ///
    /// # Errors
    /// What could not be made.
    fn take(&mut self, pair: Pair, n: u64) -> Result<Taken, Failed>;
}
