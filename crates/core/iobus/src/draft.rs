//! A version in the making.

use alloc::vec::Vec;
use core::fmt;
use core::mem;

use mayfly_platform::memory::OutOfMemory;
use mayfly_srcu::RcuBox;
use smallvec::{CollectionAllocErr, SmallVec};

use crate::owner::{Owner, Pointer};
use crate::snapshot::Snapshot;
use crate::version::{Departed, Version};
use crate::{Error, Refused, Relocation};

/// A version, and what it changes: mostly one device, which needs no list elsewhere. Dropped unpublished, it drops what
/// was added and nothing else.
pub(crate) struct Draft<D> {
    /// To begin with, the present version.
    pub(crate) snapshot: Snapshot<D>,
    /// Owners of what was put into the snapshot here.
    added: SmallVec<[Owner<D>; 1]>,
    /// What was refused while an edit was under way: it is dropped with this, under no lock, and not before.
    refused: SmallVec<[D; 1]>,
    /// What was taken out of the snapshot here, in that order. Its owner is among the bus's, or added here.
    removed: SmallVec<[Pointer<D>; 1]>,
}

impl<D> Draft<D> {
    /// Nothing changed, and nothing yet to change.
    pub(crate) fn new() -> Self {
        Self {
            snapshot: Snapshot::EMPTY,
            added: SmallVec::new(),
            refused: SmallVec::new(),
            removed: SmallVec::new(),
        }
    }

    /// Takes `device` over, to be placed in the snapshot.
    pub(crate) fn offer(&mut self, device: D) -> Result<Pointer<D>, Refused<D>> {
        let refuse = |device| Refused { error: OutOfMemory.into(), device };
        if self.added.try_reserve(1).is_err() {
            return Err(refuse(device));
        }
        let owner = Owner::try_new(device).map_err(refuse)?;
        // SAFETY: only versions that are published are looked up in, and in those only what the bus owns. From there a
        // device goes with the bus, which every lookup borrows; or with the last version that has it, which
        // is freed after a grace period, which the section of every lookup precedes.
        let pointer = unsafe { owner.pointer() };
        self.added.push(owner);
        Ok(pointer)
    }

    /// Gives back the device offered last, which could not be placed or not be published.
    pub(crate) fn refuse(&mut self, error: Error) -> Refused<D> {
        let owner = self.added.pop().expect("a device was offered");
        Refused { error, device: owner.into_device() }
    }

    /// Has `place` put `device` into the snapshot. A device that is refused stays here.
    pub(crate) fn insert(
        &mut self,
        device: D,
        place: impl FnOnce(&mut Snapshot<D>, Pointer<D>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let offered = self.offer(device);
        let placed = offered.and_then(|pointer| {
            place(&mut self.snapshot, pointer).map_err(|error| self.refuse(error))
        });
        placed.map_err(|Refused { error, device }| {
            match self.refused.try_reserve(1) {
                Ok(()) => self.refused.push(device),
                // Its drop may wait for the lock that the caller has.
                Err(_) => mem::forget(device),
            }
            error
        })
    }

    /// Removes what `take` takes out of the snapshot.
    pub(crate) fn remove(
        &mut self,
        take: impl FnOnce(&mut Snapshot<D>) -> Result<Pointer<D>, Error>,
    ) -> Result<(), Error> {
        self.removed.try_reserve(1).map_err(refused)?;
        self.removed.push(take(&mut self.snapshot)?);
        Ok(())
    }

    /// Moves what is in the snapshot.
    pub(crate) fn relocate(&mut self, relocations: &[Relocation]) -> Result<(), Error> {
        relocations.iter().try_for_each(|&relocation| self.snapshot.relocate(relocation))
    }

    /// The next version, to be published at once. What was added moves to `owners`, and what was removed from there.
    ///
    /// On failure nothing has moved.
    pub(crate) fn finish(
        &mut self,
        owners: &mut Vec<Owner<D>>,
    ) -> Result<(RcuBox<Version<D>>, Departed<D>), OutOfMemory> {
        let mut departed = Departed::new();
        departed.try_reserve_exact(self.removed.len()).map_err(refused)?;
        owners.try_reserve(self.added.len())?;
        let next = Version::new(Snapshot::EMPTY);
        let mut next = RcuBox::try_new_holding(next, self.snapshot.bytes())?;
        // Nothing fails from here on.
        next.snapshot = mem::replace(&mut self.snapshot, Snapshot::EMPTY);
        owners.extend(self.added.drain(..));
        for pointer in self.removed.drain(..) {
            let owner = owners.iter().position(|owner| owner.owns(pointer));
            let owner = owners.swap_remove(owner.expect("what was in the snapshot has an owner"));
            departed.push(owner);
        }
        Ok((next, departed))
    }
}

fn refused(_: CollectionAllocErr) -> OutOfMemory {
    OutOfMemory
}

impl<D> fmt::Debug for Draft<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Draft")
            .field("added", &self.added.len())
            .field("removed", &self.removed.len())
            .finish_non_exhaustive()
    }
}
