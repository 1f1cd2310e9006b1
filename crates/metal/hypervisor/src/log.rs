//! The last bytes that a guest has printed.
//!
//! A reader reads it a piece at a time. So it holds the lock, and keeps interrupts masked, for no longer than one
//! piece. The guest may print more in between, so places count from its first byte on.

use alloc::vec::Vec;

/// How many bytes are kept.
const KEPT: usize = 4096;

/// How many bytes a piece has.
pub const PIECE: usize = 64;

/// The last bytes that a guest has printed, over all its runs.
#[derive(Debug)]
pub struct Log {
    /// The bytes, up to [`KEPT`]: each is at its place modulo that. All of its memory is there from the beginning.
    bytes: Vec<u8>,
    /// How many bytes were printed.
    count: usize,
    /// How many of them before the present run.
    before: usize,
}

/// What a search came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// It is there.
    Found,
    /// There is more to look through, from this place on.
    Onward(usize),
    /// It was not printed.
    Missing,
}

impl Default for Log {
    fn default() -> Self {
        Self { bytes: Vec::with_capacity(KEPT), count: 0, before: 0 }
    }
}

impl Log {
    /// The guest says bytes.
    pub fn put(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            match self.bytes.get_mut(self.count % KEPT) {
                Some(oldest) => *oldest = byte,
                None => self.bytes.push(byte),
            }
            self.count += 1;
        }
    }

    /// A run begins: what was printed before belongs to another.
    pub fn begin(&mut self) {
        self.before = self.count;
    }

    /// The place behind the last byte.
    pub fn end(&self) -> usize {
        self.count
    }

    /// Looks through a piece, from `from` on or the first byte that is kept of this run, for the place where `text`
    /// begins.
    pub fn search(&self, from: usize, text: &[u8]) -> Search {
        let from = from.max(self.before).max(self.first());
        let places = (self.count + 1).saturating_sub(text.len()).max(from);
        let end = places.min(from + PIECE);
        let is_at = |place| (place..).zip(text).all(|(at, &byte)| self.bytes[at % KEPT] == byte);
        match (from..end).any(is_at) {
            true => Search::Found,
            false if end < places => Search::Onward(end),
            false => Search::Missing,
        }
    }

    /// Copies a piece of what was printed in any run, from `from` on or the first byte that is kept, and up to `to`.
    /// Returns the place behind it, and how many bytes it has: none at the end.
    pub fn copy(&self, from: usize, to: usize, piece: &mut [u8; PIECE]) -> (usize, usize) {
        let from = from.max(self.first());
        let end = to.min(self.count).min(from + PIECE).max(from);
        for (byte, at) in piece.iter_mut().zip(from..end) {
            *byte = self.bytes[at % KEPT];
        }
        (end, end - from)
    }

    /// The first place whose byte is kept.
    fn first(&self) -> usize {
        self.count.saturating_sub(KEPT)
    }
}

#[cfg(test)]
mod tests {

    use proptest::prelude::*;

    use super::*;

    fn found(log: &Log, text: &[u8]) -> bool {
        let mut at = 0;
        loop {
            match log.search(at, text) {
                Search::Found => return true,
                Search::Missing => return false,
                Search::Onward(next) => {
                    assert!(next > at, "the search stands still at {at}");
                    at = next;
                }
            }
        }
    }

    fn copied(log: &Log, to: usize) -> Vec<u8> {
        let (mut all, mut at) = (Vec::new(), 0);
        loop {
            let mut piece = [0; PIECE];
            let (next, count) = log.copy(at, to, &mut piece);
            if count == 0 {
                return all;
            }
            all.extend_from_slice(&piece[..count]);
            at = next;
        }
    }

    proptest! {
        /// Of two letters, so that a text is begun often where it is not there.
        #[test]
        fn what_was_said_in_this_life_is_found_as_in_one_piece(
            earlier in prop::collection::vec(b'a'..=b'b', 0..9_000),
            later in prop::collection::vec(b'a'..=b'b', 0..9_000),
            text in prop::collection::vec(b'a'..=b'b', 0..14),
            from in 0_usize..9_000,
        ) {
            let mut log = Log::default();
            log.put(&earlier);
            log.begin();
            log.put(&later);

            let all = [&earlier[..], &later[..]].concat();
            let kept = &all[all.len().saturating_sub(KEPT)..];
            let of_this_life = &later[later.len().saturating_sub(KEPT)..];
            let is_there = |text: &[u8]| text.is_empty() || of_this_life.windows(text.len()).any(|one| one == text);
            prop_assert_eq!(found(&log, &text), is_there(&text));
            // What is there, wherever it lies.
            let there = &of_this_life[from.min(of_this_life.len())..];
            prop_assert!(found(&log, &there[..there.len().min(14)]));
            prop_assert_eq!(copied(&log, log.end()), kept);
            prop_assert_eq!(log.end(), all.len());
        }
    }

    #[test]
    fn a_text_longer_than_what_was_said_is_missing() {
        let mut log = Log::default();
        assert_eq!(log.search(0, b"a"), Search::Missing);
        log.put(b"a");
        assert_eq!(log.search(0, b"aa"), Search::Missing);
        assert_eq!(log.search(0, b"a"), Search::Found);
        assert_eq!(log.search(usize::MAX - PIECE, b"a"), Search::Missing);
    }

    #[test]
    fn what_is_said_while_it_is_copied_does_not_lengthen_the_copy() {
        let mut log = Log::default();
        log.put(&[b'a'; 100]);
        let to = log.end();
        let mut piece = [0; PIECE];
        let (at, count) = log.copy(0, to, &mut piece);
        assert_eq!((at, count), (PIECE, PIECE));
        log.put(&[b'b'; KEPT]);
        assert_eq!(log.copy(at, to, &mut piece).1, 0, "what was to be copied is gone");
    }

    #[test]
    fn no_piece_is_longer_than_one_is_to_be() {
        let mut log = Log::default();
        log.put(&[b'a'; 2 * KEPT]);
        assert_eq!(log.search(0, b"b"), Search::Onward(KEPT + PIECE));
    }
}
