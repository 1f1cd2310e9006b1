//! Retired instructions, which are not counted on x86-64.

use core::convert::Infallible;
use core::fmt;

pub(super) use mayfly_hypervisor::arm64::layout::{DISTRIBUTOR, REDISTRIBUTORS};

/// What the processor is.
pub(super) struct Identity;

impl Identity {
    pub(super) fn read() -> Self {
        Self
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("x86-64")
    }
}

/// What counters have shown. There are none.
#[derive(Clone, Copy)]
pub(super) struct Count(Infallible);

impl Count {
    /// Of user space, of the kernel and of the program, since then.
    pub(super) fn since(self, _earlier: Self) -> [u64; 3] {
        match self.0 {}
    }
}

/// Counters that count. There are none.
pub(super) struct Retired(Infallible);

impl Retired {
    pub(super) fn read(&self) -> Count {
        match self.0 {}
    }
}

/// Begins to count.
///
/// # Errors
///
/// That nothing is counted.
pub(super) fn begin() -> Result<Retired, &'static str> {
    Err("instructions are not counted on x86-64")
}
