//! The first line of a trace.

use core::fmt;

/// The first line of a trace of this version, without what may follow on it.
pub const HEADER: &str = "mayfly-hwtrace 1";

/// What the trace says of itself, on its first line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The guests may go past the caches, and the hypervisor maintains them (`caches=maintained`; otherwise
    /// `caches=coherent`, which is taken where nothing is said).
    pub caches_maintained: bool,
}

impl fmt::Display for Options {
    /// The first line of a trace, without its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let caches = if self.caches_maintained { "maintained" } else { "coherent" };
        write!(f, "{HEADER} caches={caches}")
    }
}
