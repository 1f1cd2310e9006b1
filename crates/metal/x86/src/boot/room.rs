//! The machine's memory in whole frames, without what is taken.

use alloc::vec::Vec;
use core::ops::Range;

use super::hvm::Region;

/// Bytes of a frame.
pub const FRAME: u64 = 4096;

/// The numbers of the frames that lie as a whole in one usable region, of which no byte is in another region or is taken: in the order of
/// their numbers, and as few ranges as possible.
pub fn free(map: &[Region], taken: &[Range<u64>]) -> Vec<Range<u64>> {
    let inner = |region: &Region| region.start.div_ceil(FRAME)..region.end / FRAME;
    let outer = |range: Range<u64>| range.start / FRAME..range.end.div_ceil(FRAME);
    let mut joined: Vec<Range<u64>> = Vec::new();
    let mut usable: Vec<_> = map.iter().filter(|region| region.usable).map(inner).collect();
    usable.sort_by_key(|range| range.start);
    for range in usable.into_iter().filter(|range| !range.is_empty()) {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    let others = map.iter().filter(|region| !region.usable).map(|region| region.start..region.end);
    for hole in others.chain(taken.iter().cloned()).filter(|range| !range.is_empty()).map(outer) {
        let mut left = Vec::new();
        for range in joined {
            left.push(range.start..range.end.min(hole.start));
            left.push(range.start.max(hole.end)..range.end);
        }
        left.retain(|range| !range.is_empty());
        joined = left;
    }
    joined
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_frame_is_free_if_a_usable_region_has_it_and_none_of_it_is_taken(
            map in prop::collection::vec((0_u64..64, 0_u64..20, any::<bool>()), 0..6),
            taken in prop::collection::vec((0_u64..64, 0_u64..9), 0..4),
        ) {
            // In quarters of a frame.
            const PART: u64 = FRAME / 4;
            let regions: Vec<_> = map.iter().map(|&(start, size, usable)| Region {
                start: start * PART, end: (start + size) * PART, usable,
            }).collect();
            let holes: Vec<_> = taken.iter().map(|&(start, size)| start * PART..(start + size) * PART).collect();
            let part_is = |part: u64, usable: bool| map.iter().any(|&(start, size, its)| its == usable && (start..start + size).contains(&part));
            let is_free = |frame: u64| (4 * frame..4 * frame + 4).all(|part| {
                !part_is(part, false) && !taken.iter().any(|&(start, size)| (start..start + size).contains(&part))
            }) && map.iter().any(|&(start, size, usable)| usable && start <= 4 * frame && 4 * frame + 4 <= start + size);
            let free = free(&regions, &holes);
            let frames: BTreeSet<u64> = free.iter().cloned().flatten().collect();
            prop_assert_eq!(frames.len() as u64, free.iter().map(|range| range.end - range.start).sum::<u64>());
            prop_assert!(free.windows(2).all(|two| two[0].end <= two[1].start));
            for frame in 0..30 {
                prop_assert_eq!(frames.contains(&frame), is_free(frame), "{}", frame);
            }
        }
    }
}
