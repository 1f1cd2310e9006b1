//! What the experiment and its variants are called.

pub(super) const NAME: &str = "dirty-log";
pub(super) const WRITE_PROTECT: &str = "write-protect";
pub(super) const INITIALLY_SET: &str = "initially-set";
pub(super) const MANUAL_PROTECT: &str = "manual-protect";
pub(super) const RING: &str = "ring";
pub(super) const WRITE_LOCKED: &str = "write-locked";
