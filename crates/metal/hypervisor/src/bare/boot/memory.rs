//! The machine's memory, shared out between the heap and the pool of frames.

use alloc::vec;
use alloc::vec::Vec;
use core::ptr::with_exposed_provenance_mut;
use core::slice;

use mayfly_hypervisor::account::ShareInfo;
use mayfly_hypervisor::chunks::{Books, CHUNK, ChunkInfo, Chunks, NO_ROOM};
use mayfly_hypervisor::frames::FrameInfo;
use mayfly_hypervisor::memory_map::whole_frames;
use mayfly_hypervisor::tree::{Board, Region};
use mayfly_vm::platform::address::{PAGE_SHIFT, PAGE_SIZE};

use crate::bare::processor::{frames, heap};

/// The share of the frames that the heap gets: 1 in 64, and 4 MiB at least.
const HEAP_SHARE: u64 = 64;
const HEAP_LEAST: u64 = 4 << 20;

/// Shares of the machine that there is room for: that of a VM that runs, that of a disk, and the hypervisor's own.
const SHARES: usize = frames::MOST_SHARES;

/// Gives the free frames to the pool, and a share of them to the heap. `others` are not free, beside what the device
/// tree reserves; memory from `limit` on is not mapped, and stays unused.
pub(super) fn add(board: &Board, others: &[Region], limit: u64) -> Result<(), &'static str> {
    let taken: Vec<Region> = board.reserved.iter().chain(others).cloned().collect();
    let mut free = whole_frames(&board.memory, &taken, limit);
    let first = free.iter().map(|region| region.start).min().unwrap_or(0) >> PAGE_SHIFT;
    let last = free.iter().map(|region| region.end).max().unwrap_or(0) >> PAGE_SHIFT;
    let first = first / CHUNK * CHUNK;
    // The information on each chunk of frames is in the first region that is large enough.
    let count = (last - first).div_ceil(CHUNK) as usize;
    let block_bytes = (count * size_of::<FrameInfo>()).next_multiple_of(align_of::<ChunkInfo>());
    let bytes = (block_bytes + count * size_of::<ChunkInfo>()) as u64;
    let all: u64 = free.iter().map(|region| region.end - region.start).sum();
    let wanted = bytes.next_multiple_of(PAGE_SIZE)
        + (all / HEAP_SHARE).max(HEAP_LEAST).next_multiple_of(PAGE_SIZE);
    let room = free.iter_mut().find(|region| region.end - region.start >= wanted);
    let room = room.ok_or("there is too little memory")?;
    let blocks = with_exposed_provenance_mut::<FrameInfo>(room.start as usize);
    let chunks = with_exposed_provenance_mut::<ChunkInfo>(room.start as usize + block_bytes);
    let heap_start = room.start + bytes.next_multiple_of(PAGE_SIZE);
    room.start += wanted;
    // SAFETY: the device tree says that this memory is free, and it leaves the pool here.
    let (blocks, chunks) = unsafe {
        (0..count).for_each(|number| {
            blocks.add(number).write(FrameInfo::ABSENT);
            chunks.add(number).write(ChunkInfo::ABSENT);
        });
        heap::add(
            with_exposed_provenance_mut(heap_start as usize),
            (room.start - heap_start) as usize,
        );
        (slice::from_raw_parts_mut(blocks, count), slice::from_raw_parts_mut(chunks, count))
    };
    let shares = vec![ShareInfo::ABSENT; SHARES].leak();
    let books = Books { blocks, chunks, shares, rooms: vec![NO_ROOM; SHARES].leak() };
    let mut machine = Chunks::new(first, books);
    for region in free {
        // Frame 0 is not used: lists end with it.
        machine.add((region.start >> PAGE_SHIFT).max(1)..region.end >> PAGE_SHIFT);
    }
    frames::set(machine);
    Ok(())
}
