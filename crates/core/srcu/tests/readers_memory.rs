//! Readers that are gone leave nothing behind that a grace period would have to look at.

#![cfg(not(any(mayfly_loom, mayfly_shuttle)))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use mayfly_platform::Host;
use mayfly_srcu::{Config, Srcu};

thread_local! {
    /// Bytes that this thread has allocated and not freed.
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: memory comes from `System` and goes there.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.set(ALLOCATED.get().wrapping_add(layout.size()));
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.set(ALLOCATED.get().wrapping_sub(layout.size()));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[test]
fn ten_thousand_readers_give_back_what_they_took_in_any_order() {
    const READERS: usize = if cfg!(miri) { 100 } else { 10_000 };
    let domain = Srcu::try_new(Arc::new(Host::new()), Config::default()).unwrap();
    let mut readers = Vec::with_capacity(READERS);
    let before = ALLOCATED.get();
    for step in [1, 3, 7] {
        readers.extend((0..READERS).map(|_| domain.reader().unwrap()));
        assert!(ALLOCATED.get() >= before + READERS * 128, "a line of its own each");
        domain.synchronize();
        // First and last, and those between by steps.
        while !readers.is_empty() {
            drop(readers.swap_remove((readers.len() - 1) / step));
        }
        domain.synchronize();
        assert_eq!(ALLOCATED.get(), before, "records that nobody has");
    }
}
