//! The machine's frames.

use alloc::vec::Vec;
use core::ops::Range;
use core::ptr::with_exposed_provenance_mut;
use core::slice;

use mayfly_frames::{FrameInfo, FramePool, Span, Spans};
use mayfly_vm::platform::address::{PAGE_SIZE, Pfn};
use mayfly_vm::platform::frames::WORDS;

use super::copy;
use crate::program::processor::lock::SpinLock;

static POOL: SpinLock<Option<FramePool<'static>>> = SpinLock::new(None);

/// Has frames with these numbers be given out, as far as they are `below` a number; the others when they [are mapped
/// too](give_rest). What is known of each is kept in some of them. Once.
///
/// # Safety
///
/// They are memory, and nothing has them. Those below are mapped.
///
/// # Panics
///
/// If no range has room for what is known of them.
pub(crate) unsafe fn give(free: &[Range<u64>], below: u64) {
    let mut place = 0;
    let mut spans = Vec::new();
    for range in free {
        spans.push(Span::new(range.clone(), place));
        place += range.end - range.start;
    }
    let books = (place * size_of::<FrameInfo>() as u64).div_ceil(PAGE_SIZE);
    let has_room = |range: &&Range<u64>| range.end.min(below).saturating_sub(range.start) >= books;
    let first = free.iter().find(has_room).expect("a range has room for the books").start;
    let start = with_exposed_provenance_mut::<FrameInfo>((first * PAGE_SIZE) as usize);
    // SAFETY: the frames are the caller's to give, and these are not given out. Each entry is written before the slice is
    // made of them.
    let infos = unsafe {
        for number in 0..place as usize {
            start.add(number).write(FrameInfo::ABSENT);
        }
        slice::from_raw_parts_mut(start, place as usize)
    };
    let mut pool = FramePool::new(Spans::new(spans.leak()), infos);
    for range in free {
        let start = if range.start == first { range.start + books } else { range.start };
        pool.add(start..range.end.min(below));
    }
    *POOL.lock() = Some(pool);
}

/// Has the others be given out.
///
/// # Safety
///
/// The frames and the number are those of [`give`], and all are mapped.
pub(crate) unsafe fn give_rest(free: &[Range<u64>], below: u64) {
    if let Some(pool) = POOL.lock().as_mut() {
        for range in free {
            pool.add(range.start.max(below)..range.end);
        }
    }
}

/// How many frames are free.
pub(crate) fn free() -> u64 {
    POOL.lock().as_ref().map_or(0, FramePool::free_frames)
}

/// `1 << order` frames of zeroes, the first at a multiple of their number.
pub(crate) fn take(order: u32) -> Option<Pfn> {
    let first = POOL.lock().as_mut()?.allocate(order as usize)?;
    // SAFETY: the frames are the caller's alone, and mapped.
    unsafe { copy::clear(first * PAGE_SIZE, (WORDS as u64) << order) };
    Some(Pfn::new(first))
}

/// Takes frames back.
///
/// # Safety
///
/// They were given for that order, and nothing uses them any more.
pub(crate) unsafe fn put(first: Pfn, order: u32) {
    let is_taken = POOL.lock().as_mut().is_some_and(|pool| pool.free(first.get(), order as usize));
    assert!(is_taken, "frames are given back as they were given: {first} of order {order}");
}
