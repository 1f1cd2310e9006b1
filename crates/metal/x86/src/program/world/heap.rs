//! The heap: talc, in a first piece of the image's own, to which frames are added when they are known.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr::with_exposed_provenance_mut;

use mayfly_vm::platform::address::{PAGE_SIZE, Pfn};
use talc::base::Talc;
use talc::base::binning::DefaultBinning;
use talc::source::Manual;

use crate::program::processor::lock::SpinLock;

/// Bytes of the first piece: for what is made before frames are known.
const FIRST: usize = 256 << 10;

#[repr(align(4096))]
struct First(UnsafeCell<[u8; FIRST]>);

// SAFETY: the heap's alone, which is under its lock.
unsafe impl Sync for First {}

static FIRST_PIECE: First = First(UnsafeCell::new([0; FIRST]));

struct Heap(SpinLock<Talc<Manual, DefaultBinning>>);

#[global_allocator]
static HEAP: Heap = Heap(SpinLock::new(Talc::new(Manual)));

// SAFETY: what talc gives is as it was asked for, and the lock lets one processor at a time ask.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the size is not zero, as the caller promises.
        let given = unsafe { self.0.lock().allocate(layout) };
        given.map_or(core::ptr::null_mut(), core::ptr::NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { self.0.lock().deallocate(memory, layout) };
    }
}

/// Gives the heap its first piece. Once, before anything is allocated.
pub(crate) fn prepare() {
    // SAFETY: nothing else uses it.
    let _ = unsafe { HEAP.0.lock().claim(FIRST_PIECE.0.get().cast(), FIRST) };
}

/// Gives the heap `count` frames.
///
/// # Safety
///
/// They are memory that is mapped, and that nothing else uses, or will use.
pub(crate) unsafe fn add(first: Pfn, count: u64) {
    let start = with_exposed_provenance_mut((first.get() * PAGE_SIZE) as usize);
    // SAFETY: the caller's promise.
    let _ = unsafe { HEAP.0.lock().claim(start, (count * PAGE_SIZE) as usize) };
}

/// Bytes that are allocated now.
pub(crate) fn allocated() -> usize {
    HEAP.0.lock().counters().allocated_bytes
}
