//! The heap, counted: how many bytes are in use, and how many have been at most.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, which counts what is in use. A program that measures memory has it for its global one; one that
/// measures time does not.
#[derive(Debug)]
pub struct Counting;

// SAFETY: the system's allocator does what is promised, with the layouts that the caller gives.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        let block = unsafe { System.alloc(layout) };
        if !block.is_null() {
            let in_use = IN_USE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
            MOST.fetch_max(in_use, Ordering::Relaxed);
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(block, layout) };
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
    }
}

/// Bytes that are in use.
pub fn in_use() -> usize {
    IN_USE.load(Ordering::Relaxed)
}

/// Bytes that were in use at one time while `work` ran, at most, and that are when it has; beyond those before it. Nothing
/// else may run.
pub fn taken_by(work: impl FnOnce()) -> [usize; 2] {
    let before = in_use();
    MOST.store(before, Ordering::Relaxed);
    work();
    [MOST.load(Ordering::Relaxed), in_use()].map(|bytes| bytes.saturating_sub(before))
}
