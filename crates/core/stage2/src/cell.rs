//! Where an entry lives.

use core::marker::PhantomData;

use mayfly_platform::observe::Step;
use mayfly_platform::sync::{AtomicU64, Ordering};

use crate::tables::Tables;
use crate::{Entry, Format};

/// One word of a table, which any number of CPUs read and change at once.
///
/// Loads acquire and changes release: a CPU that finds a table through an entry finds it filled. So does hardware that
/// walks there, which needs no invalidation for it (`litmus/S2+install+publish`).
///
/// Every entry that a CPU can find is written here, and so an observer is told of it
/// ([`mayfly_platform::observe`]).
pub(crate) struct Cell<'a, F> {
    word: &'a AtomicU64,
    tables: &'a Tables,
    format: PhantomData<F>,
}

impl<'a, F: Format> Cell<'a, F> {
    #[inline]
    pub(crate) fn new(word: &'a AtomicU64, tables: &'a Tables) -> Self {
        Self { word, tables, format: PhantomData }
    }

    #[inline]
    pub(crate) fn load(self) -> Entry<F> {
        Entry::from_bits(self.word.load(Ordering::Acquire))
    }

    /// Writes a cell of a table that no other CPU can find yet, or any more.
    #[inline]
    pub(crate) fn fill(self, entry: Entry<F>) {
        if self.tables.is_observed() {
            self.swap_observed(entry, Ordering::Relaxed);
        } else {
            self.word.store(entry.bits(), Ordering::Relaxed);
        }
    }

    /// Replaces `old` by `new`; false where something else has come in its place.
    #[inline]
    pub(crate) fn replace(self, old: Entry<F>, new: Entry<F>) -> bool {
        if self.tables.is_observed() {
            return self.replace_observed(old, new);
        }
        let (old, new) = (old.bits(), new.bits());
        self.word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Puts `new` in the place of whatever is there, and returns that.
    #[inline]
    pub(crate) fn swap(self, new: Entry<F>) -> Entry<F> {
        if self.tables.is_observed() {
            return self.swap_observed(new, Ordering::AcqRel);
        }
        Entry::from_bits(self.word.swap(new.bits(), Ordering::AcqRel))
    }

    // Telling the observer is apart, so that it costs no registers where there is none.
    #[cold]
    #[inline(never)]
    fn replace_observed(self, old: Entry<F>, new: Entry<F>) -> bool {
        let (old, new) = (old.bits(), new.bits());
        let replace =
            || self.word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        self.tables.observing(replace, |done| done.then(|| self.written(old, new)))
    }

    #[cold]
    #[inline(never)]
    fn swap_observed(self, new: Entry<F>, order: Ordering) -> Entry<F> {
        let swap = || self.word.swap(new.bits(), order);
        Entry::from_bits(self.tables.observing(swap, |old| Some(self.written(*old, new.bits()))))
    }

    fn written(self, old: u64, new: u64) -> Step {
        let (table, index) = self.tables.place(self.word);
        Step::Entry { table, index, old, new }
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
