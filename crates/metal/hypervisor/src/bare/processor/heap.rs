//! The heap: talc, in a first piece of the image's own, to which frames are added when they are known, and more when VMs
//! are to be guaranteed more than it has.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr::with_exposed_provenance_mut;
use core::sync::atomic::{AtomicU64, Ordering};

use mayfly_hypervisor::account::ShareId;
use mayfly_hypervisor::promises::Promises;
use mayfly_vm::platform::address::PAGE_SIZE;
use talc::base::Talc;
use talc::base::binning::DefaultBinning;
use talc::source::Manual;

use super::frames;
use super::spin::SpinLock;

/// Bytes of the first piece: what reading the device tree and mapping memory take.
const FIRST: usize = 1 << 20;

/// It grows by `1 << GROWTH_ORDER` frames: 4 MiB, since each piece is to have room for the largest allocations.
const GROWTH_ORDER: u32 = 10;

static GROWN: AtomicU64 = AtomicU64::new(0);

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

static PROMISES: Promises = Promises::new();

/// Bytes that are guaranteed as long as this is there.
pub(crate) struct Guaranteed(usize);

impl Guaranteed {
    /// As [`Promises::guarantee`], of a heap that grows for it, as long as there are frames that nobody is guaranteed.
    pub(crate) fn try_new(bytes: usize) -> Result<Self, usize> {
        loop {
            match PROMISES.guarantee(self::bytes(), bytes) {
                Ok(()) => return Ok(Self(bytes)),
                Err(left) if !grow() => return Err(left),
                Err(_) => {}
            }
        }
    }
}

impl Drop for Guaranteed {
    fn drop(&mut self) {
        PROMISES.release(self.0);
    }
}

/// Adds frames to it. Returns whether there were any.
fn grow() -> bool {
    let Some(first) = frames::allocate_as_is(ShareId::SYSTEM, GROWTH_ORDER) else { return false };
    let start = with_exposed_provenance_mut((first.get() * PAGE_SIZE) as usize);
    GROWN.fetch_add(1 << GROWTH_ORDER, Ordering::Relaxed);
    // SAFETY: they were given for it, and are mapped; it keeps them.
    unsafe { add(start, (PAGE_SIZE as usize) << GROWTH_ORDER) };
    true
}

/// Frames that it has been given since it was first used.
pub(crate) fn grown() -> u64 {
    GROWN.load(Ordering::Relaxed)
}

/// Bytes that it has.
pub(crate) fn bytes() -> usize {
    HEAP.0.lock().counters().claimed_bytes
}

/// Bytes that VMs are guaranteed.
pub(crate) fn guaranteed() -> usize {
    PROMISES.bytes()
}

/// Bytes that are allocated now.
pub(crate) fn allocated() -> usize {
    HEAP.0.lock().counters().allocated_bytes
}
