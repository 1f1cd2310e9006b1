//! Sets of vectors, 256 bits as the registers `ISR`, `TMR` and `IRR` have them: 32 a register.

/// Which register of eight a vector is in, and its bit there.
pub(crate) const fn place(vector: u8) -> (usize, u32) {
    (vector as usize / 32, 1 << (vector % 32))
}

/// Whether a set has a vector.
pub(crate) const fn contains(words: &[u32; 8], vector: u8) -> bool {
    let (word, bit) = place(vector);
    words[word] & bit != 0
}

/// The highest vector of a set.
pub(crate) fn highest(words: &[u32; 8]) -> Option<u8> {
    highest_by(|number| words[number])
}

/// The same, of a set whose registers are read as they are looked at, from the last on.
#[inline]
pub(crate) fn highest_by(word: impl Fn(usize) -> u32) -> Option<u8> {
    (0..8_u8).rev().find_map(|number| {
        let bit = word(number.into()).checked_ilog2()?;
        Some(number * 32 + bit as u8)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_of_any_two_vectors_is_found() {
        assert_eq!(highest(&[0; 8]), None);
        for one in 0..=u8::MAX {
            for other in 0..=u8::MAX {
                let mut words = [0; 8];
                for vector in [one, other] {
                    let (word, bit) = place(vector);
                    words[word] |= bit;
                }
                assert_eq!(highest(&words), Some(one.max(other)));
                for vector in [one, other, one.wrapping_add(1), one ^ 32] {
                    assert_eq!(contains(&words, vector), vector == one || vector == other);
                }
            }
        }
    }
}
