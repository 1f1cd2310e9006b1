//! Which sectors of a disk its VM has written, where the disk lies over a partition that is not written. What was not
//! written is the partition's.
//!
//! There is a bit for each sector, so that nothing of the partition is to be read before a part of a page is written.

use core::ops::Range;

/// The bytes of a sector.
pub const SECTOR: u64 = 512;
/// The sectors of a word.
const WORD: u64 = 64;

/// Where the bits are kept, as words of 64. At first, all are zero.
pub trait Words {
    /// Why they are not there.
    type Error;

    /// Word number `word`.
    ///
    /// # Errors
    ///
    /// As the keeper's.
    fn read(&self, word: u64) -> Result<u64, Self::Error>;

    /// Has word number `word` be that.
    ///
    /// # Errors
    ///
    /// As the keeper's.
    fn write(&self, word: u64, bits: u64) -> Result<(), Self::Error>;
}

/// The bytes in front of the bits, and with them, where both are kept one behind the other, of so many sectors.
pub const fn bytes(sectors: u64) -> (u64, u64) {
    let data = sectors.saturating_mul(SECTOR);
    (data, data.saturating_add(sectors.div_ceil(WORD) * 8))
}

/// How many of these sectors, from the first on, are all written, or all not; and whether they are. They are in one word,
/// so there may be more.
///
/// # Errors
///
/// Those of the words.
pub fn part<W: Words>(words: &W, sectors: Range<u64>) -> Result<(u64, bool), W::Error> {
    let place = sectors.start % WORD;
    let bits = words.read(sectors.start / WORD)? >> place;
    let is_written = bits & 1 != 0;
    let alike = if is_written { bits.trailing_ones() } else { bits.trailing_zeros() };
    let most = (WORD - place).min(sectors.end.saturating_sub(sectors.start));
    Ok((u64::from(alike).min(most), is_written))
}

/// These sectors are written.
///
/// # Errors
///
/// Those of the words. Then some may be.
pub fn mark<W: Words>(words: &W, mut sectors: Range<u64>) -> Result<(), W::Error> {
    while !sectors.is_empty() {
        let (word, place) = (sectors.start / WORD, sectors.start % WORD);
        let count = (WORD - place).min(sectors.end - sectors.start);
        let mask = u64::MAX >> (WORD - count) << place;
        words.write(word, words.read(word)? | mask)?;
        sectors.start += count;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use core::cell::RefCell;
    use core::convert::Infallible;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    const SECTORS: u64 = 300;

    struct Kept(RefCell<Vec<u64>>);

    impl Words for Kept {
        type Error = Infallible;

        fn read(&self, word: u64) -> Result<u64, Infallible> {
            Ok(self.0.borrow()[word as usize])
        }

        fn write(&self, word: u64, bits: u64) -> Result<(), Infallible> {
            self.0.borrow_mut()[word as usize] = bits;
            Ok(())
        }
    }

    proptest! {
        /// Beside a model of a flag for each sector: what is written is found as that, part by part, and nothing else is.
        #[test]
        fn what_was_written_is_known_sector_by_sector(
            steps in prop::collection::vec((any::<bool>(), 0..SECTORS, 0..100_u64), 0..60),
        ) {
            let (data, all) = bytes(SECTORS);
            let kept = Kept(RefCell::new(std::vec![0; ((all - data) / 8) as usize]));
            let mut model = [false; SECTORS as usize];
            for (writes, start, count) in steps {
                let sectors = start..(start + count).min(SECTORS);
                let places = sectors.start as usize..sectors.end as usize;
                if writes {
                    mark(&kept, sectors).unwrap();
                    model[places].fill(true);
                    continue;
                }
                let (mut rest, mut found) = (sectors, Vec::new());
                while !rest.is_empty() {
                    let (count, is_written) = part(&kept, rest.clone()).unwrap();
                    prop_assert!(count > 0 && count <= rest.end - rest.start);
                    found.extend((0..count).map(|_| is_written));
                    rest.start += count;
                }
                prop_assert_eq!(&found[..], &model[places]);
            }
        }
    }

    #[test]
    fn the_bits_are_behind_the_data() {
        assert_eq!(
            [0, 1, 64, 65].map(bytes),
            [(0, 0), (512, 520), (0x8000, 0x8008), (0x8200, 0x8210)]
        );
        assert_eq!(bytes(u64::MAX).1, u64::MAX);
    }
}
