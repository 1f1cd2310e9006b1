//! The lock of those that write the sequence, and what only they need: how many invalidations are under way.
//!
//! Code of a caller's runs under it ([`Sequence::begin`](super::Sequence::begin),
//! [`Sequence::exclude`](super::Sequence::exclude)). If that code takes the lock again, debug builds say so.

use core::ops::{Deref, DerefMut};

use mayfly_platform::Mmu;
use mayfly_platform::lock::{Lock, LockGuard};

use super::words::WORDS;
use crate::own::{Entered, Own};

/// How many invalidations are under way of each word's regions: 64 bits, which also forgotten ones do not overflow.
pub(super) type Counts = [u64; WORDS];

pub(super) struct Marks {
    counts: Lock<Counts>,
    /// Which contexts have the lock: one at most.
    inside: Own,
}

impl Marks {
    pub(super) fn new() -> Self {
        Self { counts: Lock::new([0; WORDS]), inside: Own::new() }
    }

    /// Takes the lock.
    ///
    /// # Panics
    ///
    /// In debug builds, if the caller has it.
    #[inline]
    pub(super) fn lock<'a>(&'a self, mmu: &'a dyn Mmu) -> Guard<'a> {
        assert!(
            !self.inside.has(mmu),
            "code that runs under the sequence's lock calls the sequence, and would wait for ever"
        );
        let counts = self.counts.lock(mmu);
        Guard { entered: self.inside.enter(mmu), inside: &self.inside, counts }
    }
}

/// The lock, until this is dropped.
pub(super) struct Guard<'a> {
    counts: LockGuard<'a, Counts>,
    inside: &'a Own,
    entered: Entered,
}

impl Deref for Guard<'_> {
    type Target = Counts;

    #[inline]
    fn deref(&self) -> &Counts {
        &self.counts
    }
}

impl DerefMut for Guard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Counts {
        &mut self.counts
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.inside.leave(&self.entered);
    }
}
