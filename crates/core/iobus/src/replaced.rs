//! What an edit leaves behind.

use core::fmt;

use mayfly_srcu::{RcuBox, Retired};
use smallvec::IntoIter;

use crate::owner::Owner;
use crate::version::Version;

/// The version that an edit replaced, and the devices that only it had. New sections find neither; sections that were
/// open may still use both. All of it is deferred as one callback, and so waits for one grace period at most, however
/// many devices there are.
///
/// Against the domain's bounds counts what the bus has allocated for it: the version with its arrays, and the devices
/// as large as they are. What these hold elsewhere is not known.
///
/// Dropping this defers what it holds, as [`Replaced::defer`] does; leaking it leaks that.
#[must_use = "say how long it may take: `defer`, or `synchronize_expedited` and the like"]
pub struct Replaced<D: Send + Sync + 'static> {
    old: Retired<Version<D>>,
}

impl<D: Send + Sync + 'static> Replaced<D> {
    pub(crate) fn new(old: Retired<Version<D>>) -> Self {
        Self { old }
    }

    /// Frees the version, and drops the devices, after a grace period that no caller hurries; at once where the
    /// domain has no reader at all.
    ///
    /// Waits only where the domain's hard bound of deferred memory is reached: see
    /// [`Srcu::call`](mayfly_srcu::Srcu::call).
    pub fn defer(self) {
        self.old.defer();
    }

    /// As [`Replaced::defer`], and never waits, so it may be called from inside a section.
    ///
    /// # Errors
    ///
    /// Gives itself back where the domain's hard bound is reached: to be tried again, or disposed of outside of a
    /// section. (Dropped, it waits.)
    pub fn try_defer(self) -> Result<(), Self> {
        self.old.try_defer().map_err(Self::new)
    }

    /// Frees the version, and drops the devices, as soon as the sections open now are over: see
    /// [`Srcu::call_expedited`](mayfly_srcu::Srcu::call_expedited).
    pub fn defer_expedited(self) {
        self.old.defer_expedited();
    }

    /// Waits for the sections open now ([`Srcu::synchronize`](mayfly_srcu::Srcu::synchronize)), frees the version, and
    /// gives the devices back.
    pub fn synchronize(self) -> Devices<D> {
        Devices::of(self.old.synchronize())
    }

    /// Waits for the sections open now ([`Srcu::synchronize_expedited`](mayfly_srcu::Srcu::synchronize_expedited)),
    /// frees the version, and gives the devices back.
    pub fn synchronize_expedited(self) -> Devices<D> {
        Devices::of(self.old.synchronize_expedited())
    }
}

impl<D: Send + Sync + 'static> fmt::Debug for Replaced<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replaced").finish_non_exhaustive()
    }
}

/// The devices that an edit removed, in the order in which it did. No reader has any of them.
pub struct Devices<D> {
    departed: IntoIter<[Owner<D>; 1]>,
}

impl<D> Devices<D> {
    fn of(old: RcuBox<Version<D>>) -> Self {
        Self { departed: old.into_inner().into_departed().into_iter() }
    }
}

impl<D> Iterator for Devices<D> {
    type Item = D;

    fn next(&mut self) -> Option<D> {
        self.departed.next().map(Owner::into_device)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.departed.size_hint()
    }
}

impl<D> ExactSizeIterator for Devices<D> {}

impl<D> fmt::Debug for Devices<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Devices").field("left", &self.len()).finish_non_exhaustive()
    }
}
