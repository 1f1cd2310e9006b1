//! What the experiment and its variants are called.

pub(super) const NAME: &str = "slot-delete";
pub(super) const WRITE_LOCKED: &str = "write-locked";
pub(super) const READ_LOCKED: &str = "read-locked";
