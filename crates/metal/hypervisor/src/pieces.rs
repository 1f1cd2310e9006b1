//! The pieces of the heap: talc cuts them, and what was freed lately is kept for the next that asks for so many bytes.

mod shelf;

use core::alloc::Layout;
use core::ptr::NonNull;

use talc::base::Talc;
use talc::base::binning::DefaultBinning;
use talc::source::Manual;

use shelf::{Shelf, whole};

pub use shelf::MOST as MOST_KEPT;

/// What is cut into pieces.
pub struct Pieces {
    talc: Talc<Manual, DefaultBinning>,
    /// What was freed and is not talc's again.
    shelf: Shelf,
}

impl Pieces {
    /// Of nothing.
    pub const fn new() -> Self {
        Self { talc: Talc::new(Manual), shelf: Shelf::new() }
    }

    /// Cuts pieces of `bytes` bytes from `start` on, too. Returns whether it can.
    ///
    /// # Safety
    ///
    /// It is memory that nothing else uses, or will use.
    pub unsafe fn claim(&mut self, start: *mut u8, bytes: usize) -> bool {
        // SAFETY: as the caller promises.
        unsafe { self.talc.claim(start, bytes) }.is_some()
    }

    /// A piece that is kept, or one of talc's. If there is none, there may be when talc has [all that is
    /// kept](Pieces::clear).
    ///
    /// # Safety
    ///
    /// The size is not zero.
    #[inline]
    pub unsafe fn take(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        let kept = self.shelf.take(layout);
        // SAFETY: as the caller promises.
        kept.or_else(|| unsafe { self.talc.allocate(whole(layout)) })
    }

    /// Gives a piece back, which is kept if few are.
    ///
    /// # Safety
    ///
    /// It was taken here for `layout`, and nobody uses it any more.
    #[inline]
    pub unsafe fn give_back(&mut self, piece: NonNull<u8>, layout: Layout) {
        // SAFETY: talc has given it for all of the layout; and as the caller promises.
        unsafe {
            if !self.shelf.put(piece, layout) {
                self.talc.deallocate(piece.as_ptr(), whole(layout));
            }
        }
    }

    /// Gives talc some of what is kept, `most` pieces at most. Returns whether there were any.
    pub fn clear(&mut self, most: usize) -> bool {
        let Self { talc, shelf } = self;
        // SAFETY: talc has given them for these layouts, and nobody uses them.
        shelf.clear(most, |piece, layout| unsafe { talc.deallocate(piece.as_ptr(), layout) })
    }

    /// How many are kept.
    pub fn kept(&self) -> usize {
        self.shelf.count()
    }

    /// What cuts them.
    pub fn talc(&self) -> &Talc<Manual, DefaultBinning> {
        &self.talc
    }
}

impl Default for Pieces {
    fn default() -> Self {
        Self::new()
    }
}
