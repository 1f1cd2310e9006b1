//! Frames of zeroes. Memory is mapped one to one, so the number of a frame is its address.

use mayfly_vm::platform::address::{PAGE_SIZE, Pfn};

use super::copy;

/// Fills `count` frames from `first` on with zeroes.
///
/// # Safety
///
/// They are the caller's alone, and mapped.
#[inline]
pub unsafe fn frames(first: Pfn, count: u64) {
    // SAFETY: the caller's promise.
    unsafe { copy::clear(first.get() * PAGE_SIZE, count * PAGE_SIZE / 8) }
}
