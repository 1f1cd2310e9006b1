//! Frames for tables. A frame that was freed is poisoned, and never given again.

use std::boxed::Box;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicUsize, Ordering};

use mayfly_platform::address::Pfn;
use mayfly_platform::frames::WORDS;
use mayfly_platform::memory::OutOfMemory;
use mayfly_platform::sync::AtomicU64;

use super::tiny::POISON;

/// As many frames as a model asks for, numbered from 1. What is counted is counted behind the checker's back, so that
/// it orders nothing.
pub(crate) struct Arena {
    words: Box<[UnsafeCell<AtomicU64>]>,
    given: AtomicUsize,
    freed: AtomicUsize,
}

// SAFETY: the words are atomics; `exclusive` is what the checker checks.
unsafe impl Sync for Arena {}
// SAFETY: as above.
unsafe impl Send for Arena {}

impl Arena {
    pub(crate) fn new(frames: usize) -> Self {
        let words = (0..(frames + 1) * WORDS).map(|_| UnsafeCell::new(AtomicU64::new(POISON)));
        Self { words: words.collect(), given: AtomicUsize::new(0), freed: AtomicUsize::new(0) }
    }

    pub(crate) fn linear_map(&self) -> *const AtomicU64 {
        self.words.as_ptr().cast()
    }

    pub(crate) fn allocate(&self) -> Result<Pfn, OutOfMemory> {
        let frame = self.given.fetch_add(1, Ordering::Relaxed) + 1;
        if (frame + 1) * WORDS > self.words.len() {
            self.given.fetch_sub(1, Ordering::Relaxed);
            return Err(OutOfMemory);
        }
        self.fill(frame, 0);
        Ok(Pfn::new(frame as u64))
    }

    pub(crate) fn free(&self, pfn: Pfn) {
        self.freed.fetch_add(1, Ordering::Relaxed);
        self.fill(pfn.get() as usize, POISON);
    }

    /// Frames that were given and not freed.
    pub(crate) fn in_use(&self) -> usize {
        self.given.load(Ordering::Relaxed) - self.freed.load(Ordering::Relaxed)
    }

    /// Word `index` of frame `pfn`, as a CPU that walks tables reads it.
    pub(crate) fn load(&self, pfn: Pfn, index: usize) -> u64 {
        // SAFETY: the words are atomics; loom checks that nobody has them to himself.
        unsafe { &*self.words[pfn.get() as usize * WORDS + index].get() }
            .load(mayfly_platform::sync::Ordering::Acquire)
    }

    /// Nobody else accesses the frame meanwhile, or has without being ordered before: loom fails the model otherwise.
    #[cfg(mayfly_loom)]
    fn fill(&self, frame: usize, value: u64) {
        for word in &self.words[frame * WORDS..][..WORDS] {
            // SAFETY: loom checks it.
            unsafe { &mut *word.get() }.with_mut(|word| {
                assert_eq!(*word == POISON, value != POISON, "freed twice, or written after");
                *word = value;
            });
        }
    }

    #[cfg(mayfly_shuttle)]
    fn fill(&self, frame: usize, value: u64) {
        for word in &self.words[frame * WORDS..][..WORDS] {
            // SAFETY: the words are atomics.
            let old = unsafe { &*word.get() }.swap(value, mayfly_platform::sync::Ordering::Relaxed);
            assert_eq!(old == POISON, value != POISON, "freed twice, or written after");
        }
    }
}
