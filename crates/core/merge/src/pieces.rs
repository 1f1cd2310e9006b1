//! A row of values that grows by pieces of one size: so that to grow copies nothing, and no step of it is long.

use alloc::vec::Vec;

use mayfly_platform::memory::OutOfMemory;

/// Values in a piece.
pub(crate) const PIECE: usize = 512;

/// A row of values, each at the place that it was pushed to.
#[derive(Debug)]
pub(crate) struct Pieces<T> {
    pieces: Vec<Vec<T>>,
    len: usize,
}

impl<T> Default for Pieces<T> {
    fn default() -> Self {
        Self { pieces: Vec::new(), len: 0 }
    }
}

impl<T: Copy> Pieces<T> {
    /// So many times `value`. `pause` is called between two pieces.
    pub(crate) fn try_filled(
        value: T,
        count: usize,
        mut pause: impl FnMut(),
    ) -> Result<Self, OutOfMemory> {
        let mut all = Self::default();
        all.pieces.try_reserve_exact(count.div_ceil(PIECE)).map_err(|_| OutOfMemory)?;
        while all.len < count {
            let (mut piece, now) = (Vec::new(), PIECE.min(count - all.len));
            piece.try_reserve_exact(PIECE).map_err(|_| OutOfMemory)?;
            piece.resize(now, value);
            all.pieces.push(piece);
            all.len += now;
            pause();
        }
        Ok(all)
    }

    pub(crate) fn try_push(&mut self, value: T) -> Result<(), OutOfMemory> {
        if self.len == self.pieces.len() * PIECE {
            let mut piece = Vec::new();
            piece.try_reserve_exact(PIECE).map_err(|_| OutOfMemory)?;
            self.pieces.try_reserve(1).map_err(|_| OutOfMemory)?;
            self.pieces.push(piece);
        }
        self.pieces[self.len / PIECE].push(value);
        self.len += 1;
        Ok(())
    }

    /// Leaves the first `count`.
    pub(crate) fn truncate(&mut self, count: usize) {
        self.pieces.truncate(count.div_ceil(PIECE));
        if let Some(last) = self.pieces.last_mut() {
            last.truncate((count - 1) % PIECE + 1);
        }
        self.len = self.len.min(count);
    }

    /// Leaves nothing. `pause` is called between two pieces.
    pub(crate) fn clear(&mut self, mut pause: impl FnMut()) {
        while self.pieces.pop().is_some() {
            pause();
        }
        *self = Self::default();
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, at: usize) -> T {
        self.pieces[at / PIECE][at % PIECE]
    }

    pub(crate) fn get_mut(&mut self, at: usize) -> &mut T {
        &mut self.pieces[at / PIECE][at % PIECE]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_what_was_pushed_and_what_is_left_of_it() {
        for count in [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE] {
            let mut row = Pieces::try_filled(7, count, || ()).unwrap();
            for value in 0..PIECE {
                row.try_push(value).unwrap();
            }
            assert_eq!(row.len(), count + PIECE);
            assert_eq!((row.get(count), row.get(count + PIECE - 1)), (0, PIECE - 1));
            row.truncate(count);
            row.try_push(9).unwrap();
            assert_eq!((row.len(), row.get(count)), (count + 1, 9));
        }
    }
}
