//! What is logged in: a bitmap of the slot, or a ring of each vCPU.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A slot's bitmap (`memslot->dirty_bitmap`).
pub(super) struct Bitmap(Vec<AtomicU64>);

impl Bitmap {
    pub(super) fn new(pages: u64) -> Self {
        Self((0..pages.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    /// `set_bit_le`, which looks first.
    pub(super) fn mark(&self, page: u64) {
        self.0[page as usize / 64].fetch_or(1 << (page % 64), Ordering::AcqRel);
    }

    pub(super) fn fill(&self) {
        for word in &self.0 {
            word.store(u64::MAX, Ordering::Relaxed);
        }
    }

    /// The bits of a word, which has none left.
    pub(super) fn take(&self, index: usize) -> u64 {
        if self.0[index].load(Ordering::Relaxed) == 0 {
            return 0;
        }
        self.0[index].swap(0, Ordering::AcqRel)
    }

    /// Those bits of a word that are in `which`, and are taken out.
    pub(super) fn take_of(&self, index: usize, which: u64) -> u64 {
        self.0[index].fetch_and(!which, Ordering::AcqRel) & which
    }

    pub(super) fn read(&self, into: &mut [u64]) {
        for (into, word) in into.iter_mut().zip(&self.0) {
            *into = word.load(Ordering::Acquire);
        }
    }
}

/// `KVM_DIRTY_RING_MAX_ENTRIES`.
const ENTRIES: usize = 1 << 16;

/// Entries that are kept for what is pushed before the vCPU comes out (`KVM_DIRTY_RING_RSVD_ENTRIES`).
const RESERVED: usize = 64;

/// A vCPU's ring: its vCPU pushes, and whoever harvests collects and resets. Both are short, and only the latter takes
/// long enough for the vCPU to come in between; so a lock stands for the flags in the entries.
#[derive(Default)]
pub(super) struct Ring(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    dirty: Vec<u32>,
    /// Collected, and not reset yet.
    collected: Vec<u32>,
}

impl Ring {
    /// Returns whether there is room for another write.
    pub(super) fn push(&self, page: u64) -> bool {
        let mut entries = self.entries();
        entries.dirty.push(page as u32);
        entries.dirty.len() + entries.collected.len() < ENTRIES - RESERVED
    }

    /// Tells `each` of the pages that were written.
    pub(super) fn collect(&self, each: impl FnMut(u32)) {
        let Entries { dirty, collected } = &mut *self.entries();
        dirty.iter().copied().for_each(each);
        collected.append(dirty);
    }

    /// Takes out what was collected.
    pub(super) fn reset(&self) -> Vec<u32> {
        std::mem::take(&mut self.entries().collected)
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
