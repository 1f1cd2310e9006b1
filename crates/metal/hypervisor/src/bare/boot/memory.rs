//! The machine's memory, shared out between the heap and the pool of frames.

use alloc::vec;
use alloc::vec::Vec;
use core::ptr::with_exposed_provenance_mut;
use core::slice;

use mayfly_frames::{FrameInfo, Spans};
use mayfly_hypervisor::account::ShareInfo;
use mayfly_hypervisor::board::{Board, Region};
use mayfly_hypervisor::chunks::{Books, ChunkInfo, Chunks, NO_ROOM};
use mayfly_hypervisor::division::Division;
use mayfly_hypervisor::memory_map::whole_frames;
use mayfly_hypervisor::needs::MOST_SHARES;
use mayfly_vm::platform::address::PAGE_SHIFT;

use crate::bare::processor::{frames, heap};

/// Gives the free frames to the pool, and a share of them to the heap. `others` are not free, beside what the
/// board reserves; memory from `limit` on is not mapped, and stays unused.
pub(super) fn add(board: &Board, others: &[Region], limit: u64) -> Result<(), &'static str> {
    let taken: Vec<Region> = board.reserved.iter().chain(others).cloned().collect();
    let free = whole_frames(&board.memory, &taken, limit);
    let division = Division::of(&free).ok_or("there is too little memory")?;
    let count = division.count();
    let blocks = with_exposed_provenance_mut::<FrameInfo>(division.blocks.start as usize);
    let chunks = with_exposed_provenance_mut::<ChunkInfo>(division.chunks.start as usize);
    let Region { start, end } = division.heap;
    // SAFETY: the board says that this memory is free, and none of it is in the pool.
    let (blocks, chunks) = unsafe {
        (0..count).for_each(|number| {
            blocks.add(number).write(FrameInfo::ABSENT);
            chunks.add(number).write(ChunkInfo::ABSENT);
        });
        heap::add(with_exposed_provenance_mut(start as usize), (end - start) as usize);
        (slice::from_raw_parts_mut(blocks, count), slice::from_raw_parts_mut(chunks, count))
    };
    let shares = vec![ShareInfo::ABSENT; MOST_SHARES].leak();
    let (spans, rooms) = (Spans::new(division.spans.leak()), vec![NO_ROOM; MOST_SHARES].leak());
    let mut machine = Chunks::new(Books { spans, blocks, chunks, shares, rooms });
    for region in division.pool {
        // Frame 0 is not used: lists end with it.
        machine.add((region.start >> PAGE_SHIFT).max(1)..region.end >> PAGE_SHIFT);
    }
    frames::set(machine);
    Ok(())
}
