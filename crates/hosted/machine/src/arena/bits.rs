//! A bit for each frame.

use std::io;
use std::sync::atomic::Ordering;

use super::words::Words;

/// Bits of a word.
pub(super) const BITS: u64 = 64;

/// A bit for each frame, all clear in the beginning. Operations are on blocks: `1 << order` frames, the first at a
/// multiple of their number.
#[derive(Debug)]
pub(super) struct Bits {
    words: Words,
}

impl Bits {
    pub(super) fn new(frames: u64) -> io::Result<Self> {
        Ok(Self { words: Words::anonymous(frames.div_ceil(BITS) as usize)? })
    }

    /// Whether any is set.
    #[inline]
    pub(super) fn any(&self, first: u64, order: u32) -> bool {
        pieces(first, order)
            .any(|(word, mask)| self.words.word(word).load(Ordering::Relaxed) & mask != 0)
    }

    /// Sets them. Returns whether all were clear.
    #[inline]
    pub(super) fn set(&self, first: u64, order: u32) -> bool {
        pieces(first, order).fold(true, |clear, (word, mask)| {
            clear & (self.words.word(word).fetch_or(mask, Ordering::Relaxed) & mask == 0)
        })
    }

    /// Clears them. Returns whether all were set.
    #[inline]
    pub(super) fn clear(&self, first: u64, order: u32) -> bool {
        pieces(first, order).fold(true, |set, (word, mask)| {
            set & (self.words.word(word).fetch_and(!mask, Ordering::Relaxed) & mask == mask)
        })
    }
}

/// The words that hold the block's bits, with the bits in each.
fn pieces(first: u64, order: u32) -> impl Iterator<Item = (usize, u64)> {
    let frames = 1_u64 << order;
    let mask = if frames < BITS { ((1 << frames) - 1) << (first % BITS) } else { u64::MAX };
    let word = first / BITS;
    (word..word + frames.div_ceil(BITS)).map(move |word| (word as usize, mask))
}
