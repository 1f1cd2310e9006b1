//! Where an entry lives.

use core::marker::PhantomData;

use mayfly_platform::sync::{AtomicU64, Ordering};

use crate::{Entry, Format};

/// One word of a table, which any number of CPUs read and change at once.
///
/// Loads acquire and changes release: who finds a table through an entry finds it filled. So does hardware that walks
/// there, which needs no invalidation for it (`litmus/S2+install+publish`).
pub(crate) struct Cell<'a, F> {
    word: &'a AtomicU64,
    format: PhantomData<F>,
}

impl<'a, F: Format> Cell<'a, F> {
    #[inline]
    pub(crate) fn new(word: &'a AtomicU64) -> Self {
        Self { word, format: PhantomData }
    }

    #[inline]
    pub(crate) fn load(self) -> Entry<F> {
        Entry::from_bits(self.word.load(Ordering::Acquire))
    }

    /// Writes a cell of a table that nobody else can find yet, or any more.
    #[inline]
    pub(crate) fn fill(self, entry: Entry<F>) {
        self.word.store(entry.bits(), Ordering::Relaxed);
    }

    /// Replaces `old` by `new`; false where something else has come in its place.
    #[inline]
    pub(crate) fn replace(self, old: Entry<F>, new: Entry<F>) -> bool {
        let (old, new) = (old.bits(), new.bits());
        self.word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Puts `new` in the place of whatever is there, and returns that.
    #[inline]
    pub(crate) fn swap(self, new: Entry<F>) -> Entry<F> {
        Entry::from_bits(self.word.swap(new.bits(), Ordering::AcqRel))
    }

    /// A number that tells cells apart.
    pub(crate) fn address(self) -> usize {
        core::ptr::from_ref(self.word).addr()
    }
}

impl<F> Clone for Cell<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F> Copy for Cell<'_, F> {}
