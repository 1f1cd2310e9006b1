//! The bus: a published version, and the writers that publish the next one.

use alloc::sync::Arc;
use alloc::vec::Vec;

use mayfly_platform::Platform;
use mayfly_platform::lock::{Lock, LockGuard};
use mayfly_platform::memory::OutOfMemory;
use mayfly_srcu::{Rcu, RcuBox, Section, Srcu};

use crate::draft::Draft;
use crate::ioeventfd::Write;
use crate::owner::{Owner, Pointer};
use crate::snapshot::Snapshot;
use crate::version::Version;
use crate::{
    Edit, Error, Hit, IoRange, Ioeventfd, LastHit, Refused, Relocation, Replaced, WriteHit,
};

/// Guest I/O addresses (MMIO or PIO: one bus each), and the devices behind them.
///
/// Readers take no lock and write nothing shared: they hold a section of the bus's domain. Writers take turns; each
/// shares the present version (pointers to devices, not devices), changes a copy of what changes, and publishes that.
///
/// There are two ways to change a bus. [`register`](IoBus::register) and [`unregister`](IoBus::unregister) dispose of
/// the old version as a VM wants it, and must not be called from inside a section of the domain, which at worst they
/// wait for; [`try_relocate`](IoBus::try_relocate) may. [`insert`](IoBus::insert), [`remove`](IoBus::remove),
/// [`relocate`](IoBus::relocate) and [`edit`](IoBus::edit) leave that to the caller: themselves they wait for other
/// writers alone, and inside a section it is [`Replaced::try_defer`] that disposes of what they return.
///
/// Dropping the bus drops its devices; not from inside a section, since an old version may be left to be deferred.
pub struct IoBus<D: Send + Sync + 'static> {
    present: Rcu<Version<D>>,
    /// Locked by a writer that is about to replace `present`.
    writers: Lock<Writers<D>>,
    platform: Arc<dyn Platform>,
}

/// What is the writers' alone.
struct Writers<D: Send + Sync + 'static> {
    /// Of every device in the present version.
    owners: Vec<Owner<D>>,
    /// What a writer that must not wait replaced at the hard bound. There is at most one, and no device in it.
    left: Option<Replaced<D>>,
}

impl<D: Send + Sync + 'static> Writers<D> {
    /// Tries again to defer what is left. Returns whether nothing is.
    fn clear(&mut self) -> bool {
        self.left = self.left.take().and_then(|left| left.try_defer().err());
        self.left.is_none()
    }
}

impl<D: Send + Sync + 'static> IoBus<D> {
    /// A bus without devices, for readers of `domain`; its writers wait for each other on `platform`.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`].
    pub fn try_new(domain: &Srcu, platform: Arc<dyn Platform>) -> Result<Self, OutOfMemory> {
        let present = Rcu::new(domain, RcuBox::try_new(Version::new(Snapshot::EMPTY))?);
        let writers = Writers { owners: Vec::new(), left: None };
        Ok(Self { present, writers: Lock::new(writers), platform })
    }

    /// The domain whose readers may look up.
    pub fn domain(&self) -> &Srcu {
        self.present.domain()
    }

    /// The device that has all `len` bytes from `address` on, valid until the section ends.
    ///
    /// `None` where none of the bytes is a device's, where some are not, or where `len` is 0: the access is the
    /// caller's to handle, as an exit.
    ///
    /// # Panics
    ///
    /// If `section` is one of another domain.
    #[inline]
    pub fn find<'a>(
        &'a self,
        section: &'a impl Section,
        last: &mut LastHit,
        address: u64,
        len: u64,
    ) -> Option<Hit<'a, D>> {
        self.present.load(section).snapshot.find(&mut last.device, address, len)
    }

    /// Where a write of the low `len` bytes of `value` to `address` goes: to the ioeventfd that it matches, otherwise
    /// to the device that [`IoBus::find`] finds.
    ///
    /// Where only the address of a write is known, `len` 0 finds the ioeventfd that looks at nothing else, if there is
    /// one.
    ///
    /// # Panics
    ///
    /// If `section` is one of another domain.
    #[inline]
    pub fn find_write<'a>(
        &'a self,
        section: &'a impl Section,
        last: &mut LastHit,
        address: u64,
        len: u64,
        value: u64,
    ) -> Option<WriteHit<'a, D>> {
        let present = &self.present.load(section).snapshot;
        let write = Write::new(address, len, value);
        if let Some(eventfd) = present.find_eventfd(&mut last.eventfd, &write) {
            return Some(WriteHit::Eventfd(eventfd));
        }
        present.find(&mut last.device, address, len).map(WriteHit::Device)
    }

    /// Puts `device` on `range`. Waits for no grace period, but at the domain's hard bound of deferred memory
    /// ([`Srcu::call`]).
    ///
    /// Every section that begins after this returned finds the device.
    ///
    /// # Errors
    ///
    /// As [`Edit::insert`]. The bus is as before.
    pub fn register(&self, range: IoRange, device: D) -> Result<(), Refused<D>> {
        self.insert(range, device).map(Replaced::defer)
    }

    /// Has the writes that `on` describes signal `device`. Otherwise as [`IoBus::register`].
    ///
    /// # Errors
    ///
    /// As [`Edit::insert_eventfd`]. The bus is as before.
    pub fn register_eventfd(&self, on: Ioeventfd, device: D) -> Result<(), Refused<D>> {
        self.insert_eventfd(on, device).map(Replaced::defer)
    }

    /// Takes the device off exactly `range` and gives it back when no reader can have it any more: waits for the
    /// sections open now, and for no delay that another party's grace period was given.
    ///
    /// # Errors
    ///
    /// As [`Edit::remove`]. The bus is as before.
    pub fn unregister(&self, range: IoRange) -> Result<D, Error> {
        self.remove(range).map(only)
    }

    /// Takes off the ioeventfd of exactly this address, length and datamatch. Otherwise as [`IoBus::unregister`].
    ///
    /// # Errors
    ///
    /// As [`Edit::remove_eventfd`]. The bus is as before.
    pub fn unregister_eventfd(&self, on: Ioeventfd) -> Result<D, Error> {
        self.remove_eventfd(on).map(only)
    }

    /// Waits until every section that might have missed a change made before this call is over.
    pub fn settle(&self) {
        self.domain().synchronize_expedited();
    }

    /// Puts `device` on `range`, and leaves the old version to the caller.
    ///
    /// # Errors
    ///
    /// As [`Edit::insert`]. The bus is as before.
    pub fn insert(&self, range: IoRange, device: D) -> Result<Replaced<D>, Refused<D>> {
        self.add(device, |snapshot, device| snapshot.place(range, device))
    }

    /// Has the writes that `on` describes signal `device`, and leaves the old version to the caller.
    ///
    /// # Errors
    ///
    /// As [`Edit::insert_eventfd`]. The bus is as before.
    pub fn insert_eventfd(&self, on: Ioeventfd, device: D) -> Result<Replaced<D>, Refused<D>> {
        self.add(device, |snapshot, device| snapshot.place_eventfd(on, device))
    }

    /// Takes the device off exactly `range`, and leaves it and the old version to the caller.
    ///
    /// # Errors
    ///
    /// As [`Edit::remove`]. The bus is as before.
    pub fn remove(&self, range: IoRange) -> Result<Replaced<D>, Error> {
        self.edit(|edit| edit.remove(range)).map(|((), replaced)| replaced)
    }

    /// Takes off the ioeventfd of exactly this address, length and datamatch, and leaves it and the old version to the
    /// caller.
    ///
    /// # Errors
    ///
    /// As [`Edit::remove_eventfd`]. The bus is as before.
    pub fn remove_eventfd(&self, on: Ioeventfd) -> Result<Replaced<D>, Error> {
        self.edit(|edit| edit.remove_eventfd(on)).map(|((), replaced)| replaced)
    }

    /// Has devices answer elsewhere, and ioeventfds take other writes: one relocation after the other, which become
    /// visible together. Leaves the old version to the caller; no device goes.
    ///
    /// # Errors
    ///
    /// As [`Edit::relocate`]. The bus is as before.
    pub fn relocate(&self, relocations: &[Relocation]) -> Result<Replaced<D>, Error> {
        Ok(self.publish(&mut Draft::new(), |draft| draft.relocate(relocations))?.1)
    }

    /// As [`IoBus::relocate`], and waits for no grace period, whatever is deferred; so it may be called from inside a
    /// section of the domain, by a device that moves itself at a vCPU's exit.
    ///
    /// The old version is deferred. Where the domain's hard bound is reached, the bus keeps it, until the next change
    /// that finds room. It keeps no more than one: until then, this is refused.
    ///
    /// # Errors
    ///
    /// As [`Edit::relocate`], and [`Error::AtBound`]. The bus is as before.
    pub fn try_relocate(&self, relocations: &[Relocation]) -> Result<(), Error> {
        let mut writers = self.lock();
        if !writers.clear() {
            return Err(Error::AtBound);
        }
        let mut draft = Draft::new();
        let published =
            self.publish_as(&mut writers, &mut draft, |draft| draft.relocate(relocations));
        let ((), replaced) = published?;
        writers.left = replaced.try_defer().err();
        Ok(())
    }

    /// Publishes the changes that `change` makes together: all of them, or none.
    ///
    /// Other writers wait while `change` runs, vCPUs whose devices move among them. So it must not change this bus by
    /// other means, nor wait for a grace period of the domain.
    ///
    /// # Errors
    ///
    /// What `change` returns, or [`Error::OutOfMemory`]. The bus is as before, and devices that `change` had inserted
    /// are dropped, under no lock.
    pub fn edit<R, E: From<Error>>(
        &self,
        change: impl FnOnce(&mut Edit<'_, D>) -> Result<R, E>,
    ) -> Result<(R, Replaced<D>), E> {
        self.publish(&mut Draft::new(), |draft| change(&mut Edit::of(draft)))
    }

    fn add(
        &self,
        device: D,
        place: impl FnOnce(&mut Snapshot<D>, Pointer<D>) -> Result<(), Error>,
    ) -> Result<Replaced<D>, Refused<D>> {
        let mut draft = Draft::new();
        let pointer = draft.offer(device)?;
        match self.publish(&mut draft, |draft| place(&mut draft.snapshot, pointer)) {
            Ok(((), replaced)) => Ok(replaced),
            Err(error) => Err(draft.refuse(error)),
        }
    }

    /// Publishes the present version with what `change` changes. On failure what was added is left in `draft`, which
    /// outlives the lock, since a device's drop may use the bus.
    fn publish<R, E: From<Error>>(
        &self,
        draft: &mut Draft<D>,
        change: impl FnOnce(&mut Draft<D>) -> Result<R, E>,
    ) -> Result<(R, Replaced<D>), E> {
        let mut writers = self.lock();
        writers.clear();
        self.publish_as(&mut writers, draft, change)
    }

    fn lock(&self) -> LockGuard<'_, Writers<D>> {
        self.writers.lock(&*self.platform)
    }

    fn publish_as<R, E: From<Error>>(
        &self,
        writers: &mut Writers<D>,
        draft: &mut Draft<D>,
        change: impl FnOnce(&mut Draft<D>) -> Result<R, E>,
    ) -> Result<(R, Replaced<D>), E> {
        // SAFETY: only replaced here, by the thread that has the lock.
        let present = unsafe { self.present.load_protected() };
        draft.snapshot = present.snapshot.share();
        let made = change(draft)?;
        let (next, departed) = draft.finish(&mut writers.owners).map_err(Error::from)?;
        let bytes = present.go_with(departed, &*self.platform);
        let mut old = self.present.replace(next);
        old.hold(bytes);
        Ok((made, Replaced::new(old)))
    }
}

/// The device that was removed.
fn only<D: Send + Sync>(replaced: Replaced<D>) -> D {
    replaced.synchronize_expedited().next().expect("one device was removed")
}

impl<D: Send + Sync + 'static> core::fmt::Debug for IoBus<D> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let section = self.domain().read_lock();
        let (devices, eventfds) = self.present.load(&section).snapshot.len();
        f.debug_struct("IoBus")
            .field("devices", &devices)
            .field("eventfds", &eventfds)
            .finish_non_exhaustive()
    }
}
