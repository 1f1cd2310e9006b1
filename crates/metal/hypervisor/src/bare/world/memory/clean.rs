//! Which frames of an image are clean: all CPUs find their bytes past the caches, too, and fetch no others.
//!
//! The bytes of an image's frame do not change as long as others have the image. So such a frame is cleaned once in the life
//! of the image, and not once for each fork that maps it. (A block is noted as a whole. Where a fork maps a part of it by pages
//! before any has mapped the whole, those pages are cleaned for each fork.) The core cleans it where the first fork maps it, and [says so](mayfly_vm::HostMemory::cleaned).
//! That is noted beside the frame, in the word of a block or in the entry of a page. It is struck out where the frame
//! is written again, for which nobody else has the image ([`leaving`](super::leaving)).
//!
//! *Which orders what.* The note is a release, which comes after the caches were told and have done it. It pairs with the acquire
//! by which another fork reads it. Both bits are of words that no thread but these changes meanwhile, so an atomic *or* loses nothing.

use core::sync::atomic::{AtomicU64, Ordering};

use mayfly_vm::platform::address::{PAGE_SHIFT, Pfn};
use mayfly_vm::stage2::Level;

use super::{BLOCK, BLOCK_SHIFT, GuestMemory, KIND, PAGES, TABLE, entry};

/// In a word that names a block, where a word that names a table has its last page.
const CLEAN_BLOCK: u64 = 1 << 2;
/// In the entry of a page, between its frame and the page before it.
const CLEAN_PAGE: u64 = 1 << 47;

/// Where it is noted of a page, and by which bit; nowhere, if the page has no frame.
fn note_of(word: &AtomicU64, page: u64) -> Option<(&AtomicU64, u64)> {
    let value = word.load(Ordering::Acquire);
    match value & KIND {
        BLOCK => Some((word, CLEAN_BLOCK)),
        TABLE => Some((entry(value, page), CLEAN_PAGE)),
        _ => None,
    }
}

/// Whether the frame of a page is clean, and if it is part of a block, all of that.
pub(super) fn is_clean(word: &AtomicU64, page: u64) -> bool {
    note_of(word, page).is_some_and(|(noted, bit)| noted.load(Ordering::Acquire) & bit != 0)
}

/// The frame of a page is written.
pub(super) fn strike_out(word: &AtomicU64, page: u64) {
    if let Some((noted, bit)) = note_of(word, page) {
        noted.fetch_and(!bit, Ordering::Relaxed);
    }
}

impl GuestMemory {
    /// Notes that `first`, the first frame of a block or page of `level` at `address`, is clean, if it is an image's and all that
    /// is noted together.
    pub(super) fn note_clean(&self, address: u64, first: Pfn, level: Level) {
        let (number, page) = ((address >> BLOCK_SHIFT) as usize, (address >> PAGE_SHIFT) % PAGES);
        for word in self.images().filter_map(|image| image.words.get(number)) {
            let found = Self::look_to_read(word, page);
            if found == Some((first, level))
                && let Some((noted, bit)) = note_of(word, page)
            {
                noted.fetch_or(bit, Ordering::Release);
            }
            if found.is_some() {
                return;
            }
        }
    }
}
