//! What an edit leaves behind.

use core::fmt;
use core::mem::{self, ManuallyDrop};

use mayfly_srcu::{Retired, Srcu};
use smallvec::IntoIter;

use crate::draft::Removed;
use crate::owner::Owner;
use crate::snapshot::Snapshot;

/// The version that an edit replaced, and the devices that only it had. New sections find neither; sections that were
/// open may still use both.
///
/// Dropping this defers what it holds, as [`Replaced::defer`] does; leaking it leaks that.
#[must_use = "say how long it may take: `defer`, or `synchronize_expedited` and the like"]
pub struct Replaced<'bus, D: Send + Sync + 'static> {
    /// `None` once it has been disposed of.
    snapshot: Option<Retired<Snapshot<D>>>,
    removed: Removed<D>,
    domain: &'bus Srcu,
}

impl<'bus, D: Send + Sync + 'static> Replaced<'bus, D> {
    pub(crate) fn new(
        snapshot: Retired<Snapshot<D>>,
        removed: Removed<D>,
        domain: &'bus Srcu,
    ) -> Self {
        Self { snapshot: Some(snapshot), removed, domain }
    }

    /// Frees the version, and drops the devices, after a grace period that nobody is in a hurry for.
    ///
    /// Waits only where the domain's hard bound of deferred memory is reached: see [`Srcu::call`].
    pub fn defer(self) {
        drop(self);
    }

    /// Frees the version, and drops the devices, as soon as the sections open now are over: see
    /// [`Srcu::call_expedited`].
    pub fn defer_expedited(mut self) {
        while let Some(owner) = self.removed.pop() {
            self.domain.call_expedited(ManuallyDrop::into_inner(owner).into_callback());
        }
        if let Some(snapshot) = self.snapshot.take() {
            snapshot.defer_expedited();
        }
    }

    /// Waits for the sections open now ([`Srcu::synchronize`]), frees the version, and gives the devices back.
    pub fn synchronize(self) -> Devices<D> {
        self.wait(Retired::synchronize)
    }

    /// Waits for the sections open now ([`Srcu::synchronize_expedited`]), frees the version, and gives the devices
    /// back.
    pub fn synchronize_expedited(self) -> Devices<D> {
        self.wait(Retired::synchronize_expedited)
    }

    fn wait<T>(mut self, wait: impl FnOnce(Retired<Snapshot<D>>) -> T) -> Devices<D> {
        if let Some(snapshot) = self.snapshot.take() {
            drop(wait(snapshot));
        }
        Devices { removed: mem::take(&mut self.removed).into_iter() }
    }
}

impl<D: Send + Sync + 'static> Drop for Replaced<'_, D> {
    fn drop(&mut self) {
        while let Some(owner) = self.removed.pop() {
            self.domain.call(ManuallyDrop::into_inner(owner).into_callback());
        }
    }
}

impl<D: Send + Sync + 'static> fmt::Debug for Replaced<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replaced").field("removed", &self.removed.len()).finish_non_exhaustive()
    }
}

/// The devices that an edit removed, in the order in which it did. No reader has any of them.
pub struct Devices<D> {
    removed: IntoIter<[ManuallyDrop<Owner<D>>; 1]>,
}

impl<D> Iterator for Devices<D> {
    type Item = D;

    fn next(&mut self) -> Option<D> {
        self.removed.next().map(|owner| ManuallyDrop::into_inner(owner).into_device())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.removed.size_hint()
    }
}

impl<D> ExactSizeIterator for Devices<D> {}

impl<D> Drop for Devices<D> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

impl<D> fmt::Debug for Devices<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Devices").field("left", &self.len()).finish_non_exhaustive()
    }
}
