//! The machine's frames.

use mayfly_hwtrace::Event;
use mayfly_hypervisor::frames::FramePool;
use mayfly_vm::platform::address::{PAGE_SIZE, Pfn};

use super::spin::SpinLock;
use super::trace;

static FRAMES: SpinLock<Option<FramePool<'static>>> = SpinLock::new(None);

/// Sets which frames the machine has. Once.
pub(crate) fn set(pool: FramePool<'static>) {
    *FRAMES.lock() = Some(pool);
}

/// How many frames are free.
pub(crate) fn count_free() -> u64 {
    FRAMES.lock().as_ref().map_or(0, FramePool::free_frames)
}

/// `1 << order` frames of zeroes. `look` is called after every two of them that are cleared: interrupts are masked
/// here.
#[inline]
pub(crate) fn allocate(order: u32, look: impl Fn()) -> Option<Pfn> {
    const PART: u64 = 2;
    let first = FRAMES.lock().as_mut()?.allocate(order as usize)?;
    let end = first + (1 << order);
    for part in (first..end).step_by(PART as usize) {
        let start = core::ptr::with_exposed_provenance_mut::<u8>((part * PAGE_SIZE) as usize);
        let bytes = (end - part).min(PART) * PAGE_SIZE;
        // SAFETY: the frames are the caller's alone, and mapped.
        unsafe { start.write_bytes(0, bytes as usize) };
        look();
    }
    trace::note(|| Event::Give { frame: first, order });
    Some(Pfn::new(first))
}

/// Takes frames back.
///
/// # Safety
///
/// They were given for that order, and nothing uses them any more.
pub(crate) unsafe fn free(first: Pfn, order: u32) {
    // Before another caller can be given them.
    trace::note(|| Event::Free { frame: first.get(), order });
    let taken = FRAMES.lock().as_mut().is_some_and(|pool| pool.free(first.get(), order as usize));
    debug_assert!(taken, "frames are given back as they were given");
}
