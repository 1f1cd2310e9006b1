//! The processors of the machine, numbered from 0 without a gap.

use core::sync::atomic::{AtomicU32, Ordering};

/// The most processors that are used.
pub(crate) const MAX: usize = 128;

/// How many are up.
static UP: AtomicU32 = AtomicU32::new(0);

/// How many processors are up.
pub(crate) fn count() -> u32 {
    UP.load(Ordering::Acquire)
}

/// This processor is up.
pub(crate) fn is_up() {
    UP.fetch_add(1, Ordering::Release);
}
