//! How the machine's free memory is divided: the books of it, the heap, and the rest, which is the pool of frames.
//!
//! The books have an entry for each chunk of memory that there is, and for a few that there are not: regions with a small
//! gap between them are one span. So the books are in proportion to the memory, at whatever addresses it is.

use alloc::vec::Vec;

use mayfly_vm::platform::address::PAGE_SIZE;

use crate::board::Region;
use crate::chunks::{CHUNK, ChunkInfo};
use mayfly_frames::{FrameInfo, Span};

/// The share of the frames that the heap gets: 1 in 64, and 4 MiB at least.
const HEAP_SHARE: u64 = 64;
const HEAP_LEAST: u64 = 4 << 20;

const CHUNK_BYTES: u64 = CHUNK * PAGE_SIZE;
/// Chunks between two regions that are in the books all the same: 64 MiB, whose entries take some 28 KiB. Most gaps are
/// small pieces of memory that is in use.
const SMALL_GAP: u64 = 1024;

/// What each part of the memory is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Division {
    /// The chunks that are in the books.
    pub spans: Vec<Span>,
    /// Of these, one entry each: where the entries on blocks are, and those on chunks.
    pub blocks: Region,
    /// As above.
    pub chunks: Region,
    /// The heap.
    pub heap: Region,
    /// The rest.
    pub pool: Vec<Region>,
}

impl Division {
    /// Divides `free`, whole frames in the order of their addresses. `None` where no region is large enough for books and
    /// heap.
    pub fn of(free: &[Region]) -> Option<Self> {
        let spans = spans(free);
        let count = spans.last().map_or(0, Span::end);
        let block_bytes = count * size_of::<FrameInfo>() as u64;
        let block_bytes = block_bytes.next_multiple_of(align_of::<ChunkInfo>() as u64);
        let bytes = block_bytes + count * size_of::<ChunkInfo>() as u64;
        let all: u64 = free.iter().map(|region| region.end - region.start).sum();
        let heap_bytes = (all / HEAP_SHARE).max(HEAP_LEAST).next_multiple_of(PAGE_SIZE);
        let wanted = bytes.next_multiple_of(PAGE_SIZE) + heap_bytes;
        let mut pool = free.to_vec();
        let room = pool.iter_mut().find(|region| region.end - region.start >= wanted)?;
        let start = room.start;
        room.start += wanted;
        Some(Self {
            spans,
            blocks: start..start + block_bytes,
            chunks: start + block_bytes..start + bytes,
            heap: room.start - heap_bytes..room.start,
            pool,
        })
    }

    /// How many chunks are in the books.
    pub fn count(&self) -> usize {
        self.spans.last().map_or(0, Span::end) as usize
    }
}

/// The whole chunks of these regions, and those in small gaps.
fn spans(free: &[Region]) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for region in free {
        let (first, end) = (region.start.div_ceil(CHUNK_BYTES), region.end / CHUNK_BYTES);
        if first >= end {
            continue;
        }
        match spans.pop() {
            Some(last) if first - last.numbers().end <= SMALL_GAP => {
                let place = last.end() - (last.numbers().end - last.numbers().start);
                spans.push(Span::new(last.numbers().start..end, place));
            }
            last => {
                let place = last.as_ref().map_or(0, Span::end);
                spans.extend(last);
                spans.push(Span::new(first..end, place));
            }
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use std::vec;

    use proptest::prelude::*;

    use super::*;
    use crate::account::{ShareId, ShareInfo};
    use crate::chunks::{Books, Chunks, NO_ROOM};
    use crate::memory_map::whole_frames;
    use mayfly_frames::Spans;

    const GIB: u64 = 1 << 30;
    const LIMIT: u64 = 1 << 48;

    /// Divides memory of which a little is in use at the beginning and in the middle of each region, and has a share take
    /// all frames of the pool. Returns how many bytes the books take, and how many the share has got.
    fn taken(memory: &[Region]) -> (u64, u64) {
        let in_use = |region: &Region| {
            let middle = region.start.midpoint(region.end);
            [region.start..region.start + 0x1234, middle..middle + (5 << 20)]
        };
        let in_use: Vec<_> = memory.iter().flat_map(in_use).collect();
        let free = whole_frames(memory, &in_use, LIMIT);
        let division = Division::of(&free).unwrap();
        let count = division.count();
        let mut blocks = vec![FrameInfo::ABSENT; count];
        let mut chunks = vec![ChunkInfo::ABSENT; count];
        let (mut shares, mut rooms) = (vec![ShareInfo::ABSENT; 2], vec![NO_ROOM; 2]);
        let books = Books {
            spans: Spans::new(&division.spans),
            blocks: &mut blocks,
            chunks: &mut chunks,
            shares: &mut shares,
            rooms: &mut rooms,
        };
        let mut machine = Chunks::new(books);
        for region in &division.pool {
            machine.add(region.start / PAGE_SIZE..region.end / PAGE_SIZE);
        }
        let all = machine.free_frames();
        let mut given = Vec::new();
        for order in (0..19).rev() {
            while let Some(first) = machine.allocate(ShareId::SYSTEM, order) {
                let bytes = first * PAGE_SIZE..(first + (1 << order)) * PAGE_SIZE;
                let is_in =
                    |region: &Region| region.start <= bytes.start && bytes.end <= region.end;
                assert!(division.pool.iter().any(is_in), "{bytes:x?}");
                given.push((first, order));
            }
        }
        assert_eq!(given.iter().map(|(_, order)| 1 << order).sum::<u64>(), all);
        let bytes = division.chunks.end - division.blocks.start;
        assert!(given.into_iter().all(|(first, order)| machine.free(first, order)));
        assert_eq!(machine.free_frames(), all, "all of it is taken back");
        (bytes, all * PAGE_SIZE)
    }

    #[test]
    fn memory_at_1_tib_is_used_and_its_books_are_in_proportion_to_it() {
        let memory = [GIB..2 * GIB, 1024 * GIB..1026 * GIB];
        let (books, bytes) = taken(&memory);
        assert!(books < 3 * GIB / 2000, "{books}");
        assert!(bytes > 3 * GIB * 97 / 100, "{bytes}");
    }

    #[test]
    fn all_memory_of_an_ampere_altra_is_used() {
        // 2 GiB of each of its two sockets' memory are below 4 GiB and at 4 TiB, and the rest of the first at 512 GiB.
        let memory = [2 * GIB..4 * GIB, 512 * GIB..518 * GIB, 4096 * GIB..4100 * GIB];
        let (books, bytes) = taken(&memory);
        assert!(books < 12 * GIB / 2000, "{books}");
        assert!(bytes > 12 * GIB * 97 / 100, "{bytes}");
    }

    #[test]
    fn memory_without_room_for_its_books_and_the_heap_is_refused() {
        assert_eq!(Division::of(&[]), None);
        assert_eq!(Division::of(core::slice::from_ref(&(0..HEAP_LEAST))), None);
    }

    proptest! {
        #[test]
        fn every_whole_chunk_is_in_the_books_and_no_part_overlaps_another(
            regions in prop::collection::vec((1_u64..1 << 28, 1_u64..1 << 16), 1..8),
        ) {
            let mut at = 0;
            let mut free = Vec::new();
            for (gap, frames) in regions {
                let start = at + gap;
                at = start + frames;
                free.push(start * PAGE_SIZE..at * PAGE_SIZE);
            }
            let Some(division) = Division::of(&free) else { return Ok(()) };
            let spans = Spans::new(&division.spans);
            for region in &free {
                for chunk in [region.start.div_ceil(CHUNK_BYTES), (region.end / CHUNK_BYTES).saturating_sub(1)] {
                    if region.start <= chunk * CHUNK_BYTES && (chunk + 1) * CHUNK_BYTES <= region.end {
                        prop_assert!(spans.place(chunk).is_some_and(|place| place < division.count()));
                    }
                }
            }
            for pair in division.spans.windows(2) {
                prop_assert!(pair[0].numbers().end < pair[1].numbers().start && pair[0].end() <= division.count() as u64);
            }
            let own = [&division.blocks, &division.chunks, &division.heap];
            prop_assert!(own.windows(2).all(|pair| pair[0].end <= pair[1].start));
            let all = division.blocks.start..division.heap.end;
            prop_assert!(free.iter().any(|region| region.start <= all.start && all.end <= region.end));
            prop_assert!(division.pool.iter().all(|region| region.end <= all.start || all.end <= region.start));
            let sum = |regions: &[Region]| regions.iter().map(|region| region.end - region.start).sum::<u64>();
            prop_assert_eq!(sum(&free), sum(&division.pool) + (all.end - all.start));
        }
    }
}
