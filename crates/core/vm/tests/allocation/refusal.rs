//! An allocator that refuses what it is told to, and counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::null_mut;

use super::common::Hardware;

/// Which allocations of a call are refused; the first is number 1.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refusal {
    /// This one alone: what the call does about it finds memory.
    Only(usize),
    /// This one and all that follow.
    From(usize),
    /// Not of memory, but of frames for tables: this one and all that follow.
    Frames(usize),
}

pub(crate) const REFUSALS: [fn(usize) -> Refusal; 3] =
    [Refusal::Only, Refusal::From, Refusal::Frames];

impl Refusal {
    pub(crate) fn first(self) -> usize {
        match self {
            Self::Only(nth) | Self::From(nth) | Self::Frames(nth) => nth,
        }
    }

    fn refuses(self, nth: usize) -> bool {
        match self {
            Self::Only(only) => nth == only,
            Self::From(first) => nth >= first,
            Self::Frames(_) => false,
        }
    }
}

thread_local! {
    static REFUSAL: Cell<Option<Refusal>> = const { Cell::new(None) };
    /// Allocations that this thread asked for under the present refusal.
    static ASKED: Cell<usize> = const { Cell::new(0) };
    /// Allocations less deallocations of this thread.
    pub(crate) static LIVE: Cell<isize> = const { Cell::new(0) };
}

struct Failing;

#[global_allocator]
static ALLOCATOR: Failing = Failing;

// SAFETY: passes everything on to the system's allocator, or gives no memory, as an allocator may. (`realloc` and
// `alloc_zeroed` are the provided ones, which come through here.)
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.set(ASKED.get() + 1);
        if REFUSAL.get().is_some_and(|refusal| refusal.refuses(ASKED.get())) {
            return null_mut();
        }
        LIVE.set(LIVE.get() + 1);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get() - 1);
        // SAFETY: as the caller promises; all memory is the system's.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// What `work` returns under `refusal`, and whether it came to refusing anything.
pub(crate) fn starved<T>(
    refusal: Refusal,
    hardware: &Hardware,
    work: impl FnOnce() -> T,
) -> (T, bool) {
    if let Refusal::Frames(nth) = refusal {
        hardware.refuse_frames_after(nth - 1);
        let result = work();
        return (result, hardware.refuse_no_frames() > 0);
    }
    ASKED.set(0);
    REFUSAL.set(Some(refusal));
    let result = work();
    REFUSAL.set(None);
    (result, ASKED.get() >= refusal.first())
}
