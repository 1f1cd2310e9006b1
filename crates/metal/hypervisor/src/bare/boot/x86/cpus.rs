//! The other processors.

use crate::bare::processor::cpus;
use crate::bare::threads;

/// Prepares the rest of this processor, when it is known what all can do, and counts it as up.
pub(super) fn prepare() {
    threads::adopt();
    cpus::is_up();
}
