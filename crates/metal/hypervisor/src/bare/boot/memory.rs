//! The machine's memory, shared out between the heap and the pool of frames.

use alloc::vec::Vec;
use core::ptr::with_exposed_provenance_mut;
use core::slice;

use mayfly_hypervisor::frames::{FrameInfo, FramePool};
use mayfly_hypervisor::memory_map::whole_frames;
use mayfly_hypervisor::tree::{Board, Region};
use mayfly_vm::platform::address::{PAGE_SHIFT, PAGE_SIZE};

use crate::bare::processor::{frames, heap};

/// The share of the frames that the heap gets: 1 in 64, and 4 MiB at least.
const HEAP_SHARE: u64 = 64;
const HEAP_LEAST: u64 = 4 << 20;

/// Gives the free frames to the pool, and a share of them to the heap. `others` are not free, beside what the device
/// tree reserves; memory from `limit` on is not mapped, and stays unused.
pub(super) fn add(board: &Board, others: &[Region], limit: u64) -> Result<(), &'static str> {
    let taken: Vec<Region> = board.reserved.iter().chain(others).cloned().collect();
    let mut free = whole_frames(&board.memory, &taken, limit);
    let first = free.iter().map(|region| region.start).min().unwrap_or(0) >> PAGE_SHIFT;
    let last = free.iter().map(|region| region.end).max().unwrap_or(0) >> PAGE_SHIFT;
    // The information on each frame is in the first region that is large enough.
    let count = (last - first) as usize;
    let bytes = (count * size_of::<FrameInfo>()) as u64;
    let all: u64 = free.iter().map(|region| region.end - region.start).sum();
    let wanted = bytes.next_multiple_of(PAGE_SIZE)
        + (all / HEAP_SHARE).max(HEAP_LEAST).next_multiple_of(PAGE_SIZE);
    let room = free.iter_mut().find(|region| region.end - region.start >= wanted);
    let room = room.ok_or("there is too little memory")?;
    let infos = with_exposed_provenance_mut::<FrameInfo>(room.start as usize);
    let heap_start = room.start + bytes.next_multiple_of(PAGE_SIZE);
    room.start += wanted;
    // SAFETY: the device tree says that this memory is free, and it leaves the pool here.
    let pool = unsafe {
        (0..count).for_each(|number| infos.add(number).write(FrameInfo::ABSENT));
        heap::add(
            with_exposed_provenance_mut(heap_start as usize),
            (room.start - heap_start) as usize,
        );
        slice::from_raw_parts_mut(infos, count)
    };
    let mut pool = FramePool::new(first, pool);
    for region in free {
        // Frame 0 is not used: lists end with it.
        pool.add((region.start >> PAGE_SHIFT).max(1)..region.end >> PAGE_SHIFT);
    }
    frames::set(pool);
    Ok(())
}
