//! The allocator: it hands out the next bytes, and frees none.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Memory of the machine that is neither the image's nor that of [frames](crate::platform).
const START: usize = 0x5000_0000;
const END: usize = 0x7000_0000;

struct Heap {
    next: AtomicUsize,
    blocks: AtomicUsize,
    bytes: AtomicUsize,
}

#[global_allocator]
static HEAP: Heap =
    Heap { next: AtomicUsize::new(START), blocks: AtomicUsize::new(0), bytes: AtomicUsize::new(0) };

/// Blocks and bytes that were asked for so far.
pub(crate) fn asked() -> (usize, usize) {
    (HEAP.blocks.load(Ordering::Relaxed), HEAP.bytes.load(Ordering::Relaxed))
}

// SAFETY: what is given is given once, aligned as asked for, of memory that is the allocator's alone.
unsafe impl GlobalAlloc for Heap {
    #[unsafe(link_section = ".text.outside.allocator")]
    #[inline(never)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let start = self.next.load(Ordering::Relaxed).next_multiple_of(layout.align());
        let end = start + layout.size();
        if end > END {
            return null_mut();
        }
        self.next.store(end, Ordering::Relaxed);
        self.blocks.store(self.blocks.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.bytes.store(self.bytes.load(Ordering::Relaxed) + layout.size(), Ordering::Relaxed);
        start as *mut u8
    }

    #[unsafe(link_section = ".text.outside.allocator")]
    #[inline(never)]
    unsafe fn dealloc(&self, _memory: *mut u8, _layout: Layout) {}

    #[unsafe(link_section = ".text.outside.allocator")]
    #[inline(never)]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // Zero still: nothing is given twice, and the machine's memory begins so.
        // SAFETY: as the caller promises.
        unsafe { self.alloc(layout) }
    }
}
