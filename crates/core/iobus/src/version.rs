//! A version as it is published, and what goes with it.

use mayfly_platform::Platform;
use mayfly_platform::lock::Lock;
use smallvec::SmallVec;

use crate::owner::Owner;
use crate::snapshot::Snapshot;

/// Owners of devices that no present version has, in the order in which they were removed.
pub(crate) type Departed<D> = SmallVec<[Owner<D>; 1]>;

/// What readers find. The devices that it is the last version to have go with it: a grace period that is over for the
/// one is over for the others, and all of it is deferred as one.
pub(crate) struct Version<D> {
    pub(crate) snapshot: Snapshot<D>,
    /// Put in by the writer that replaces this version, and taken out by the thread that has it to itself. Readers
    /// never look.
    departed: Lock<Departed<D>>,
}

impl<D> Version<D> {
    pub(crate) fn new(snapshot: Snapshot<D>) -> Self {
        Self { snapshot, departed: Lock::new(Departed::new()) }
    }

    /// Has `departed` go with this version, which is about to be replaced. Returns how many more bytes that gives back.
    pub(crate) fn go_with(&self, departed: Departed<D>, platform: &dyn Platform) -> usize {
        if departed.is_empty() {
            return 0;
        }
        let list = if departed.spilled() { departed.capacity() * size_of::<Owner<D>>() } else { 0 };
        let bytes = departed.len() * Owner::<D>::BYTES + list;
        *self.departed.lock(platform) = departed;
        bytes
    }

    pub(crate) fn into_departed(mut self) -> Departed<D> {
        core::mem::take(self.departed.get_mut())
    }
}
