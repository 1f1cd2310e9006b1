//! What a frame holds, as one number.

/// An odd number whose bits are in no order (that of the golden ratio).
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

const LANES: usize = 4;

/// Words of a page.
const WORDS: usize = 512;

/// The [`sum`] of a page of zeroes.
pub const ZEROES: u64 = sum_of_zeroes();

/// A number that pages with different contents hardly ever have in common. Of a page that is being written, of no
/// particular contents. It keeps nobody from choosing pages that have it in common: what follows from it is checked.
pub fn sum(words: impl Iterator<Item = u64>) -> u64 {
    // Several at a time, since each step waits for the product before.
    let mut lanes = [FACTOR; LANES];
    for (index, word) in words.enumerate() {
        let lane = &mut lanes[index % LANES];
        *lane = step(*lane, word);
    }
    whole(lanes)
}

const fn step(lane: u64, word: u64) -> u64 {
    (lane ^ word).wrapping_mul(FACTOR).rotate_left(29)
}

const fn whole([a, b, c, d]: [u64; LANES]) -> u64 {
    step(step(step(step(0, a), b), c), d)
}

const fn sum_of_zeroes() -> u64 {
    let (mut lane, mut word) = (FACTOR, 0);
    while word < WORDS / LANES {
        lane = step(lane, 0);
        word += 1;
    }
    whole([lane; LANES])
}

#[cfg(test)]
mod tests {
    use std::vec;

    use super::*;

    #[test]
    fn pages_that_differ_in_one_word_or_in_its_place_have_different_sums() {
        let mut sums = vec![sum([0; WORDS].into_iter())];
        assert_eq!(sums, [ZEROES]);
        for place in 0..WORDS {
            let mut page = [0; WORDS];
            page[place] = 1;
            sums.push(sum(page.into_iter()));
        }
        sums.sort_unstable();
        sums.dedup();
        assert_eq!(sums.len(), WORDS + 1);
    }
}
