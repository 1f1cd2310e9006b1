//! The machine's memory in whole frames: the regions that may be mapped, and the regions that are free.
//!
//! Firmware may describe memory in any order, with regions that overlap or that end inside of a frame, and reserve any
//! part of it. A frame counts as memory only if all of it is memory, and it counts as taken if any byte of it is taken.

use alloc::vec::Vec;

use mayfly_vm::platform::address::PAGE_SIZE;

use crate::board::Region;

/// The whole frames of `memory` that end at `limit` or below, without each frame that `taken` touches: in the order of
/// their addresses, and as few regions as possible. `limit` is a multiple of the size of a frame.
pub fn whole_frames(memory: &[Region], taken: &[Region], limit: u64) -> Vec<Region> {
    let mut frames: Vec<Region> = memory.iter().map(|region| inner(region, limit)).collect();
    frames.sort_by_key(|region| region.start);
    let mut joined: Vec<Region> = Vec::new();
    for region in frames.into_iter().filter(|region| !region.is_empty()) {
        match joined.last_mut() {
            Some(last) if region.start <= last.end => last.end = last.end.max(region.end),
            _ => joined.push(region),
        }
    }
    for taken in taken {
        let taken = outer(taken, limit);
        joined = joined.iter().flat_map(|region| without(region, &taken)).collect();
        joined.retain(|region| !region.is_empty());
    }
    joined
}

/// The frames that lie wholly in `region`.
fn inner(region: &Region, limit: u64) -> Region {
    let start = region.start.min(limit).next_multiple_of(PAGE_SIZE);
    start..region.end.min(limit) & !(PAGE_SIZE - 1)
}

/// The frames that `region` touches.
fn outer(region: &Region, limit: u64) -> Region {
    if region.is_empty() {
        return 0..0;
    }
    region.start & !(PAGE_SIZE - 1)..region.end.min(limit).next_multiple_of(PAGE_SIZE)
}

fn without(region: &Region, taken: &Region) -> [Region; 2] {
    let below = region.start..region.end.min(taken.start);
    let above = region.start.max(taken.end)..region.end;
    [below, above]
}

#[cfg(test)]
mod tests {
    use core::slice::from_ref;

    use proptest::prelude::*;

    use super::*;

    const FRAMES: u64 = 64;

    /// A region of a small machine: its ends need not be those of frames, and may be beyond the limit.
    fn region() -> impl Strategy<Value = Region> {
        (0..FRAMES * PAGE_SIZE + 3 * PAGE_SIZE, 0..8 * PAGE_SIZE)
            .prop_map(|(start, size)| start..start + size)
    }

    #[test]
    fn a_region_that_ends_with_the_address_space_is_cut_at_the_limit() {
        let (all, limit) = (from_ref(&(0..u64::MAX)), 1 << 39);
        assert_eq!(whole_frames(all, &[], limit), *from_ref(&(0..limit)));
        assert!(whole_frames(all, all, limit).is_empty());
        assert!(whole_frames(from_ref(&(1 << 40..1 << 41)), &[], limit).is_empty());
    }

    proptest! {
        /// Held against a look at each byte of each frame.
        #[test]
        fn a_frame_is_there_if_all_of_it_is_memory_and_none_of_it_is_taken(
            memory in prop::collection::vec(region(), 0..6),
            taken in prop::collection::vec(region(), 0..6),
        ) {
            let limit = FRAMES * PAGE_SIZE;
            let regions = whole_frames(&memory, &taken, limit);
            for frame in 0..FRAMES + 4 {
                let bytes = frame * PAGE_SIZE..(frame + 1) * PAGE_SIZE;
                // One region has all of it: a frame of which two nodes have a part each does not count.
                let is_memory = memory.iter().any(|m| m.start <= bytes.start && bytes.end <= m.end);
                let is_taken = taken.iter().any(|t| t.start < bytes.end && bytes.start < t.end && !t.is_empty());
                let holds = regions.iter().filter(|r| r.start <= bytes.start && bytes.end <= r.end).count();
                let expected = usize::from(is_memory && !is_taken && bytes.end <= limit);
                prop_assert_eq!(holds, expected, "frame {}", frame);
            }
            for pair in regions.windows(2) {
                prop_assert!(pair[0].end < pair[1].start, "{:?}", pair);
            }
            for region in &regions {
                prop_assert!(region.start % PAGE_SIZE == 0 && region.end % PAGE_SIZE == 0 && !region.is_empty());
            }
        }
    }
}
