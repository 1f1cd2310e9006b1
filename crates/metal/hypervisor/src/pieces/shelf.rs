//! Pieces of the heap that were freed, and are kept for the next that asks for so many bytes.
//!
//! VMs come and go, and each takes and frees pieces of the same sizes as the one before. The allocator cuts and joins pieces
//! each time. A piece that is kept is taken again by a few instructions. A piece is kept by what the allocator
//! [takes](crate::promises::taken) for it, so one that was taken for 20 bytes serves one of 24: the allocator is asked for
//! [all](whole()) that it takes in any case, and is given as much back.
//!
//! What is kept is free all the same: as long as the allocator has no piece, it is [given](Shelf::clear) some of what is kept, and
//! asked again. There are [`MOST`] pieces at most, so that this does not take long.

use core::alloc::Layout;
use core::ptr::{NonNull, null_mut};

use crate::promises::{TAG, UNIT, taken};

/// The most bytes that the allocator takes for a piece that is kept.
const LARGEST: usize = 4096;
const SIZES: usize = LARGEST / UNIT;

/// How many pieces are kept at most.
pub const MOST: usize = 96;

/// A piece that is kept, with the next one of its size.
struct Piece(*mut Self);

/// What is kept.
pub(super) struct Shelf {
    /// The first piece of each size.
    first: [*mut Piece; SIZES],
    count: usize,
}

// SAFETY: the pieces are its own.
unsafe impl Send for Shelf {}

impl Shelf {
    /// With nothing.
    pub(super) const fn new() -> Self {
        Self { first: [null_mut(); SIZES], count: 0 }
    }

    /// How many pieces are kept.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// A piece for `layout`, if one is kept.
    #[inline]
    pub(super) fn take(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        let first = self.first.get_mut(size_of(layout)?)?;
        let piece = NonNull::new(*first)?;
        // SAFETY: it is kept, so it was written by `put`, and nobody else has it.
        *first = unsafe { piece.as_ref() }.0;
        self.count -= 1;
        Some(piece.cast())
    }

    /// Keeps a piece, unless it is too large, or too many are kept. Returns whether it does.
    ///
    /// # Safety
    ///
    /// The allocator has given it for the [`whole`] of `layout`, and nobody uses it any more.
    #[inline]
    pub(super) unsafe fn put(&mut self, piece: NonNull<u8>, layout: Layout) -> bool {
        let Some(first) = size_of(layout).and_then(|size| self.first.get_mut(size)) else {
            return false;
        };
        if self.count == MOST {
            return false;
        }
        let piece = piece.cast::<Piece>();
        // SAFETY: it is large enough, aligned, and free, as the caller promises.
        unsafe { piece.write(Piece(*first)) };
        *first = piece.as_ptr();
        self.count += 1;
        true
    }

    /// Calls `back` with pieces that are kept, `most` at most, and with the layouts for which the allocator has given them.
    /// They are kept no more. Returns whether there were any.
    pub(super) fn clear(&mut self, most: usize, mut back: impl FnMut(NonNull<u8>, Layout)) -> bool {
        let before = self.count;
        for size in 0..SIZES {
            if before - self.count == most {
                break;
            }
            while before - self.count < most
                && !self.first[size].is_null()
                && let Ok(layout) = Layout::from_size_align((size + 1) * UNIT - TAG, UNIT)
                && let Some(piece) = self.take(layout)
            {
                back(piece, layout);
            }
        }
        self.count < before
    }
}

/// What the allocator is asked for, for a piece of `layout`: all that it takes in any case.
pub(super) fn whole(layout: Layout) -> Layout {
    let (size, align) = (taken(layout.size()) - TAG, layout.align().max(UNIT));
    Layout::from_size_align(size, align).unwrap_or(layout)
}

/// The number of a layout's size, if pieces of its alignment are kept: that of all that the allocator gives.
#[inline]
fn size_of(layout: Layout) -> Option<usize> {
    (layout.align() <= UNIT).then(|| taken(layout.size()) / UNIT - 1)
}
