//! EL2's own tables, as far as stacks are mapped by them.

use core::arch::asm;

pub(crate) use mayfly_arm64::tlb::invalidate_own as invalidate;

/// Where the addresses of stacks begin: in the last 512 GiB of those that EL2 has.
pub(crate) const STACKS_AT: u64 = (1 << 48) - (1 << 39);

/// An entry that names a table.
pub(crate) const TABLE: u64 = 3;
/// An entry of a page: valid, RES1, inner shareable, accessed, and never executed. The index of its attributes is 0, as
/// where memory is mapped one to one.
pub(crate) const PAGE: u64 = 3 | 1 << 6 | 3 << 8 | 1 << 10 | 1 << 54;

/// Entries were written that were not valid before: walks see them.
pub(crate) fn are_written() {
    // SAFETY: barriers.
    unsafe { asm!("dsb ishst", "isb", options(nostack)) };
}
