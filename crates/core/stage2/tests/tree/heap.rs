//! A heap that refuses when a test wants it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::null_mut;

struct Heap;

#[global_allocator]
static HEAP: Heap = Heap;

thread_local! {
    /// Allocations of this thread that still succeed.
    static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
}

// SAFETY: memory comes from the system's allocator, or there is none.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let left = LEFT.get();
        if left == 0 {
            return null_mut();
        }
        if left != usize::MAX {
            LEFT.set(left - 1);
        }
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises; `alloc` got it there.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Runs `work` with a heap that refuses every allocation of this thread after the next `count`.
pub(crate) fn failing_after<T>(count: usize, work: impl FnOnce() -> T) -> T {
    LEFT.set(count);
    let result = work();
    LEFT.set(usize::MAX);
    result
}
