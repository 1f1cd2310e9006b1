//! What a frame holds.

use std::sync::atomic::Ordering;

use mayfly_platform::address::Pfn;

use crate::Arena;

/// An odd number whose bits are in no order (that of the golden ratio).
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

const LANES: usize = 4;

/// A number that frames with different contents hardly ever have in common. Of a frame that is being written, of no
/// particular contents.
pub(super) fn checksum(arena: &Arena, frame: Pfn) -> u64 {
    // Several at a time, since each step waits for the product before.
    let mut lanes = [FACTOR; LANES];
    for (index, word) in arena.words(frame).enumerate() {
        let lane = &mut lanes[index % LANES];
        *lane = (*lane ^ word.load(Ordering::Relaxed)).wrapping_mul(FACTOR).rotate_left(29);
    }
    lanes.iter().fold(0, |sum: u64, lane| (sum ^ lane).wrapping_mul(FACTOR).rotate_left(29))
}

/// Whether a frame holds nothing but zeroes.
pub(super) fn is_zero(arena: &Arena, frame: Pfn) -> bool {
    arena.words(frame).all(|word| word.load(Ordering::Relaxed) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_differ_in_one_word_or_in_its_place_have_different_checksums() {
        let arena = Arena::new(2).unwrap();
        let frame = arena.allocate(0).unwrap();
        let mut sums = vec![checksum(&arena, frame)];
        assert!(is_zero(&arena, frame));
        for word in arena.words(frame) {
            word.store(1, Ordering::Relaxed);
            sums.push(checksum(&arena, frame));
            assert!(!is_zero(&arena, frame));
            word.store(0, Ordering::Relaxed);
        }
        assert_eq!(checksum(&arena, frame), sums[0]);
        let count = sums.len();
        sums.sort_unstable();
        sums.dedup();
        assert_eq!(sums.len(), count);
    }
}
