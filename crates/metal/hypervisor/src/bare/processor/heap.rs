//! The heap: talc, in a first piece of the image's own, to which frames are added when they are known.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering};

use talc::base::Talc;
use talc::base::binning::DefaultBinning;
use talc::source::Manual;

use super::spin::SpinLock;

/// Bytes of the first piece: what reading the device tree and mapping memory take.
const FIRST: usize = 1 << 20;

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
    unsafe { add(FIRST_PIECE.0.get().cast(), FIRST) };
}

/// Gives the heap another piece.
///
/// # Safety
///
/// It is memory that nothing else uses, or will use.
pub(crate) unsafe fn add(start: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    let _ = unsafe { HEAP.0.lock().claim(start, bytes) };
}

/// The part of the heap that is the hypervisor's own, and is guaranteed to no VM: one in eight.
const OWN: usize = 8;

/// Bytes that VMs are guaranteed.
static GUARANTEED: AtomicUsize = AtomicUsize::new(0);

/// Guarantees a VM so many bytes, which [`release`] takes back.
///
/// # Errors
///
/// How many bytes are left to be guaranteed, if that is less.
pub(crate) fn guarantee(bytes: usize) -> Result<(), usize> {
    let all = HEAP.0.lock().counters().claimed_bytes;
    let most = all - all / OWN;
    let more = |before: usize| before.checked_add(bytes).filter(|after| *after <= most);
    let set = GUARANTEED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    set.map(|_| ()).map_err(|before| most - before)
}

/// Takes back what [`guarantee`] has given.
pub(crate) fn release(bytes: usize) {
    GUARANTEED.fetch_sub(bytes, Ordering::Relaxed);
}

/// Bytes that VMs are guaranteed.
pub(crate) fn guaranteed() -> usize {
    GUARANTEED.load(Ordering::Relaxed)
}

/// Bytes that are allocated now.
pub(crate) fn allocated() -> usize {
    HEAP.0.lock().counters().allocated_bytes
}
