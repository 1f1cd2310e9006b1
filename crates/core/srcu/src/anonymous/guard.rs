//! The guards of sections that have no reader of their own.

use core::fmt;
use core::marker::PhantomData;

use super::Counted;
use crate::contexts::Entry;
use crate::{Section, Srcu};

/// A read-side section without a [`Reader`](crate::Reader): see [`Srcu::read_lock`]. It stays on its thread:
///
/// ```compile_fail,E0277
/// fn sent<T: Send>() {}
/// sent::<mayfly_srcu::AnonymousGuard>();
/// ```
#[must_use = "the section ends when the guard is dropped"]
pub struct AnonymousGuard<'a> {
    domain: &'a Srcu,
    counted: Counted,
    entry: Entry,
    /// So that the thread that has entered it has it: see `contexts`.
    one_thread: PhantomData<*const ()>,
}

impl<'a> AnonymousGuard<'a> {
    #[inline]
    pub(crate) fn enter(domain: &'a Srcu) -> Self {
        let anonymous = domain.anonymous();
        let counted = anonymous.enter();
        let entry = anonymous.contexts[counted.index].enter(domain.inner().world());
        Self { domain, counted, entry, one_thread: PhantomData }
    }
}

impl Drop for AnonymousGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.domain.anonymous().contexts[self.counted.index].leave(&self.entry);
        if self.domain.anonymous().leave(&self.counted) {
            self.domain.inner().reader_left();
        }
    }
}

impl fmt::Debug for AnonymousGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnonymousGuard")
    }
}

// SAFETY: the section is counted from `enter` until the guard is dropped.
unsafe impl Section for AnonymousGuard<'_> {
    fn domain(&self) -> &Srcu {
        self.domain
    }
}

/// A read-side section without a [`Reader`](crate::Reader) that goes where its guard goes: see
/// [`Srcu::read_lock_owned`].
#[must_use = "the section ends when the guard is dropped"]
pub struct OwnedAnonymousGuard {
    domain: Srcu,
    counted: Counted,
}

impl OwnedAnonymousGuard {
    pub(crate) fn enter(domain: Srcu) -> Self {
        let counted = domain.anonymous().enter();
        Self { domain, counted }
    }
}

impl Drop for OwnedAnonymousGuard {
    fn drop(&mut self) {
        if self.domain.anonymous().leave(&self.counted) {
            self.domain.inner().reader_left();
        }
    }
}

impl fmt::Debug for OwnedAnonymousGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnedAnonymousGuard")
    }
}

// SAFETY: the section is counted from `enter` until the guard is dropped.
unsafe impl Section for OwnedAnonymousGuard {
    fn domain(&self) -> &Srcu {
        &self.domain
    }
}
