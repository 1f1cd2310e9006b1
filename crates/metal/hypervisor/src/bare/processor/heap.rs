//! The heap: talc, in a first piece of the image's own, to which frames are added when they are known, and more when VMs
//! are to be guaranteed more than it has.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr::{NonNull, null_mut, with_exposed_provenance_mut};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use mayfly_hypervisor::account::ShareId;
use mayfly_hypervisor::pieces::Pieces;
use mayfly_hypervisor::promises::{Promises, taken};
use mayfly_vm::platform::address::PAGE_SIZE;

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

struct Counted {
    pieces: Pieces,
    /// Bytes that it has.
    all: usize,
    /// Bytes that are taken, and the most that were at a time.
    taken: usize,
    peak: usize,
}

struct Heap(SpinLock<Counted>);

#[global_allocator]
static HEAP: Heap =
    Heap(SpinLock::new(Counted { pieces: Pieces::new(), all: 0, taken: 0, peak: 0 }));

/// Pieces that talc is given back before the lock is free for a moment, for processors that wait for it. This processor looks
/// for no interrupts until it has its piece: some caller has a lock. [`MOST_KEPT`](mayfly_hypervisor::pieces::MOST_KEPT) bounds that.
const GIVEN_BACK_AT_ONCE: usize = 16;

impl Counted {
    /// As [`Pieces::take`].
    ///
    /// # Safety
    ///
    /// The size is not zero.
    #[inline]
    unsafe fn take(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: as the caller promises.
        let given = unsafe { self.pieces.take(layout) }?;
        self.taken += taken(layout.size());
        self.peak = self.peak.max(self.taken);
        Some(given)
    }
}

impl Heap {
    /// A piece, where talc needs what is kept.
    ///
    /// # Safety
    ///
    /// The size is not zero.
    #[cold]
    unsafe fn take_after_clearing(&self, layout: Layout) -> Option<NonNull<u8>> {
        loop {
            let mut heap = self.0.lock();
            let is_more = heap.pieces.clear(GIVEN_BACK_AT_ONCE);
            // SAFETY: as the caller promises.
            let given = unsafe { heap.take(layout) };
            if given.is_some() || !is_more {
                return given;
            }
        }
    }
}

// SAFETY: what talc gives is as it was asked for, and the lock lets one processor at a time ask.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the size is not zero, as the caller promises.
        let given = unsafe { self.0.lock().take(layout) };
        // SAFETY: as above.
        let given = given.or_else(|| unsafe { self.take_after_clearing(layout) });
        given.map_or(null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        let mut heap = self.0.lock();
        heap.taken -= taken(layout.size());
        if let Some(memory) = NonNull::new(memory) {
            // SAFETY: as the caller promises.
            unsafe { heap.pieces.give_back(memory, layout) };
        }
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
    let mut heap = HEAP.0.lock();
    // SAFETY: the caller's promise.
    if unsafe { heap.pieces.claim(start, bytes) } {
        heap.all += bytes;
    }
}

static PROMISES: Promises = Promises::new();
/// The most bytes that were guaranteed at a time.
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// Bytes that are guaranteed as long as this is there.
pub(crate) struct Guaranteed(usize);

impl Guaranteed {
    /// As [`Promises::guarantee`], of a heap that grows for it, as long as there are frames that nobody is guaranteed.
    pub(crate) fn try_new(bytes: usize) -> Result<Self, usize> {
        loop {
            match PROMISES.guarantee(self::bytes(), bytes) {
                Ok(()) => {
                    PEAK.fetch_max(PROMISES.bytes(), Ordering::Relaxed);
                    return Ok(Self(bytes));
                }
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
    HEAP.0.lock().all
}

/// Bytes that VMs are guaranteed.
pub(crate) fn guaranteed() -> usize {
    PROMISES.bytes()
}

/// Bytes that are taken now.
pub(crate) fn in_use() -> usize {
    HEAP.0.lock().taken
}

/// The most bytes that were taken at a time, and the most that were guaranteed, since this was asked last.
pub(crate) fn take_peaks() -> (usize, usize) {
    let mut heap = HEAP.0.lock();
    let now = heap.taken;
    (core::mem::replace(&mut heap.peak, now), PEAK.swap(PROMISES.bytes(), Ordering::Relaxed))
}
