//! A version in the making.

use alloc::vec::Vec;
use core::fmt;
use core::mem;

use mayfly_platform::memory::OutOfMemory;

use crate::handle::{Handle, Owner};
use crate::snapshot::Snapshot;
use crate::{Error, Refused};

/// A version, and what it changes. Dropped unpublished, it drops what was added and nothing else.
pub(crate) struct Draft<D> {
    pub(crate) snapshot: Snapshot<D>,
    /// Put into the snapshot here, so in no published version: ours, until the snapshot is published.
    added: Vec<Owner<D>>,
    /// Taken out of the snapshot here: not ours, until the snapshot is published.
    removed: Vec<Handle<D>>,
}

impl<D> Draft<D> {
    /// Without a version to start from: [`Draft::begin`] provides one.
    pub(crate) fn new() -> Self {
        Self { snapshot: Snapshot::EMPTY, added: Vec::new(), removed: Vec::new() }
    }

    /// Starts from a copy of `present`.
    ///
    /// # Safety
    ///
    /// If the draft is published, then in place of `present`.
    pub(crate) unsafe fn begin(&mut self, present: &Snapshot<D>) -> Result<(), OutOfMemory> {
        // SAFETY: a draft's devices are not looked up before it is published; then, in place of `present`, it is the owner of
        // those that it has.
        self.snapshot = unsafe { present.copy()? };
        Ok(())
    }

    /// Takes `device` over, to be placed in the snapshot.
    pub(crate) fn offer(&mut self, device: D) -> Result<Handle<D>, Refused<D>> {
        let refuse = |device| Refused { error: OutOfMemory.into(), device };
        if self.added.try_reserve(1).is_err() {
            return Err(refuse(device));
        }
        let owner = Owner::try_new(device).map_err(refuse)?;
        // SAFETY: looked up only once it is published; from then on the device goes only a grace period after the
        // publication of a version without it, or with the bus.
        let handle = unsafe { Handle::of(&owner) };
        self.added.push(owner);
        Ok(handle)
    }

    /// Gives back the device offered last, which could not be placed or not be published.
    pub(crate) fn refuse(&mut self, error: Error) -> Refused<D> {
        let owner = self.added.pop().expect("a device was offered");
        Refused { error, device: owner.into_device() }
    }

    /// Removes what `take` takes out of the snapshot.
    pub(crate) fn remove(
        &mut self,
        take: impl FnOnce(&mut Snapshot<D>) -> Result<Handle<D>, Error>,
    ) -> Result<(), Error> {
        self.removed.try_reserve(1).map_err(OutOfMemory::from)?;
        self.removed.push(take(&mut self.snapshot)?);
        Ok(())
    }

    /// The snapshot, to be published at once, and the owners of what it lacks.
    pub(crate) fn finish(&mut self) -> (Snapshot<D>, Vec<Handle<D>>) {
        // From here on, the handles in the snapshot or among the removed own them.
        self.added.drain(..).for_each(mem::forget);
        (mem::replace(&mut self.snapshot, Snapshot::EMPTY), mem::take(&mut self.removed))
    }
}

impl<D> fmt::Debug for Draft<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Draft")
            .field("added", &self.added.len())
            .field("removed", &self.removed.len())
            .finish_non_exhaustive()
    }
}
