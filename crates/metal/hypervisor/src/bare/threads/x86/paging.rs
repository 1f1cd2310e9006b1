//! The program's own tables, as far as stacks are mapped by them.

use core::sync::atomic::{Ordering, compiler_fence};

pub(crate) use crate::bare::processor::this_cpu::invalidate_own as invalidate;

/// Where the addresses of stacks begin: in the last 512 GiB of the lower half of all.
pub(crate) const STACKS_AT: u64 = (1 << 47) - (1 << 39);

/// An entry that names a table: present, and of what may be written.
pub(crate) const TABLE: u64 = 3;
/// An entry of a page: likewise, and never executed.
pub(crate) const PAGE: u64 = 3 | 1 << 63;

/// Entries were written that were not present before, which no TLB keeps: they come before the accesses by them.
pub(crate) fn are_written() {
    compiler_fence(Ordering::SeqCst);
}
