//! Changing several things at once.

use crate::draft::Draft;
use crate::{Error, IoRange, Ioeventfd, Relocation};

/// Changes to a bus that become visible together: see [`IoBus::edit`](crate::IoBus::edit). Later changes see earlier
/// ones.
// A reference, so that a caller that swaps two edits does not swap what two buses publish.
#[derive(Debug)]
pub struct Edit<'a, D>(&'a mut Draft<D>);

impl<'a, D> Edit<'a, D> {
    pub(crate) fn of(draft: &'a mut Draft<D>) -> Self {
        Self(draft)
    }

    /// Puts `device` on `range`.
    ///
    /// # Errors
    ///
    /// [`Error::ZeroLength`], [`Error::Overflow`], [`Error::Overlap`], [`Error::Full`] or [`Error::OutOfMemory`]. The
    /// edit is as before, and can go on. The device is dropped when the edit is over, under no lock; it is
    /// leaked if there is no memory to keep it until then, which there is for one.
    pub fn insert(&mut self, range: IoRange, device: D) -> Result<(), Error> {
        self.0.insert(device, |snapshot, pointer| snapshot.place(range, pointer))
    }

    /// Takes the device off exactly `range`. It comes out with what the edit [replaced](crate::Replaced).
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`] or [`Error::OutOfMemory`]. The edit is as before, and can go on.
    pub fn remove(&mut self, range: IoRange) -> Result<(), Error> {
        self.0.remove(|snapshot| snapshot.take(range))
    }

    /// Has the writes that `on` describes signal `device`, inside a device's range as well as outside.
    ///
    /// # Errors
    ///
    /// [`Error::EventfdLength`], [`Error::EventfdOverflow`], [`Error::EventfdDatamatchWithoutLength`],
    /// [`Error::Collision`] or [`Error::OutOfMemory`]. The edit is as before, and can go on. The device is dropped when
    /// the edit is over, as in [`Edit::insert`].
    pub fn insert_eventfd(&mut self, on: Ioeventfd, device: D) -> Result<(), Error> {
        self.0.insert(device, |snapshot, pointer| snapshot.place_eventfd(on, pointer))
    }

    /// Takes off the ioeventfd of exactly this address, length and datamatch. Its device comes out with what the edit
    /// [replaced](crate::Replaced).
    ///
    /// # Errors
    ///
    /// [`Error::NoEventfd`] or [`Error::OutOfMemory`]. The edit is as before, and can go on.
    pub fn remove_eventfd(&mut self, on: Ioeventfd) -> Result<(), Error> {
        self.0.remove(|snapshot| snapshot.take_eventfd(on))
    }

    /// Has a device answer elsewhere, or an ioeventfd take other writes.
    ///
    /// # Errors
    ///
    /// For what is to move, as [`Edit::remove`] and [`Edit::remove_eventfd`]; for where it goes, as [`Edit::insert`]
    /// and [`Edit::insert_eventfd`], itself not being in its way. The edit is as before, and can go on.
    pub fn relocate(&mut self, relocation: Relocation) -> Result<(), Error> {
        self.0.snapshot.relocate(relocation)
    }
}
