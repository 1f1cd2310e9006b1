//! One version of a bus.

use crate::capacity::MAX_DEVICES;
use crate::ioeventfd::Write;
use crate::owner::Pointer;
use crate::table::Table;
use crate::{Error, Hit, IoRange, Ioeventfd, Relocation};

/// Devices, with the lengths of their ranges, by the starts of these, which do not overlap. Ioeventfds by
/// [`Ioeventfd::key`], no two of which collide.
pub(crate) struct Snapshot<D> {
    devices: Table<(u64, Pointer<D>)>,
    eventfds: Table<(Ioeventfd, Pointer<D>)>,
}

/// Readers.
impl<D> Snapshot<D> {
    /// The device that has all `len` bytes from `address` on.
    #[inline]
    pub(crate) fn find(&self, last: &mut usize, address: u64, len: u64) -> Option<Hit<'_, D>> {
        if let Some(hit) = self.device_at(*last, address, len) {
            return Some(hit);
        }
        let index = self.devices.up_to(address).wrapping_sub(1);
        let hit = self.device_at(index, address, len)?;
        *last = index;
        Some(hit)
    }

    /// What is signalled by `write`.
    #[inline]
    pub(crate) fn find_eventfd(&self, last: &mut usize, write: &Write) -> Option<&D> {
        // What most buses have.
        if self.eventfds.entries().is_empty() {
            return None;
        }
        if let Some(device) = self.eventfd_at(*last, write) {
            return Some(device);
        }
        let up_to = self.eventfds.up_to(write.address);
        let (address, _) = self.eventfds.get(up_to.wrapping_sub(1))?;
        if address != write.address {
            return None;
        }
        let candidates = &self.eventfds.entries()[..up_to];
        let after = candidates.partition_point(|(on, _)| on.key() <= write.key());
        let index = after.wrapping_sub(1);
        let device = self.eventfd_at(index, write)?;
        *last = index;
        Some(device)
    }

    #[inline]
    fn device_at(&self, index: usize, address: u64, len: u64) -> Option<Hit<'_, D>> {
        let (start, (range_len, device)) = self.devices.get(index)?;
        let offset = address.checked_sub(start)?;
        // The last byte's offset; no bytes at all have one that is past every end.
        let last = offset.checked_add(len.wrapping_sub(1))?;
        (last < *range_len).then(|| Hit { device: device.device(), offset })
    }

    #[inline]
    fn eventfd_at(&self, index: usize, write: &Write) -> Option<&D> {
        let (_, (on, device)) = self.eventfds.get(index)?;
        on.matches(write).then(|| device.device())
    }
}

/// Writers.
impl<D> Snapshot<D> {
    pub(crate) const EMPTY: Self = Self { devices: Table::EMPTY, eventfds: Table::EMPTY };

    /// The same version, until either is changed.
    pub(crate) fn share(&self) -> Self {
        Self { devices: self.devices.share(), eventfds: self.eventfds.share() }
    }

    pub(crate) fn place(&mut self, range: IoRange, device: Pointer<D>) -> Result<(), Error> {
        let index = self.room_for(range, None)?;
        if self.devices.entries().len() >= MAX_DEVICES {
            return Err(Error::Full(range));
        }
        Ok(self.devices.insert(index, range.start, (range.len, device))?)
    }

    pub(crate) fn take(&mut self, range: IoRange) -> Result<Pointer<D>, Error> {
        let index = self.index_of(range)?;
        Ok(self.devices.remove(index)?.1)
    }

    pub(crate) fn place_eventfd(&mut self, on: Ioeventfd, device: Pointer<D>) -> Result<(), Error> {
        let index = self.room_for_eventfd(on, None)?;
        Ok(self.eventfds.insert(index, on.address, (on, device))?)
    }

    pub(crate) fn take_eventfd(&mut self, on: Ioeventfd) -> Result<Pointer<D>, Error> {
        let index = self.index_of_eventfd(on)?;
        Ok(self.eventfds.remove(index)?.1)
    }

    pub(crate) fn relocate(&mut self, relocation: Relocation) -> Result<(), Error> {
        match relocation {
            Relocation::Device { from, to } => {
                let index = self.index_of(from)?;
                let (_, device) = self.devices.entries()[index];
                let new = self.room_for(to, Some(index))?;
                self.devices.relocate(index, new, to.start, (to.len, device))?;
            }
            Relocation::Eventfd { from, to } => {
                let index = self.index_of_eventfd(from)?;
                let (_, device) = self.eventfds.entries()[index];
                let new = self.room_for_eventfd(to, Some(index))?;
                self.eventfds.relocate(index, new, to.address, (to, device))?;
            }
        }
        Ok(())
    }

    /// Where a device on `range` would lie among the others, of which that at `but` is none.
    fn room_for(&self, range: IoRange, but: Option<usize>) -> Result<usize, Error> {
        let end = range.end()?;
        let index = self.devices.up_to(range.start);
        // What lies before the one that is none ended where that began.
        let before = index.checked_sub(1).filter(|&before| Some(before) != but);
        let before = before.and_then(|before| self.range_at(before));
        let after = self.range_at(index + usize::from(Some(index) == but));
        // Registered ranges do not wrap.
        if let Some(with) = before.filter(|before| range.start - before.start < before.len) {
            return Err(Error::Overlap { range, with });
        }
        if let Some(with) = after.filter(|after| after.start < end) {
            return Err(Error::Overlap { range, with });
        }
        Ok(index - usize::from(but.is_some_and(|but| but < index)))
    }

    /// As [`Snapshot::room_for`].
    fn room_for_eventfd(&self, on: Ioeventfd, but: Option<usize>) -> Result<usize, Error> {
        on.check()?;
        let up_to = &self.eventfds.entries()[..self.eventfds.up_to(on.address)];
        let same_address = up_to.partition_point(|(other, _)| other.address < on.address);
        let others = (same_address..up_to.len()).filter(|&other| Some(other) != but);
        if let Some(with) = others.map(|other| up_to[other].0).find(|other| on.collides(*other)) {
            return Err(Error::Collision { eventfd: on, with });
        }
        let index = up_to.partition_point(|(other, _)| other.key() < on.key());
        Ok(index - usize::from(but.is_some_and(|but| but < index)))
    }

    fn index_of(&self, range: IoRange) -> Result<usize, Error> {
        let index = self.devices.up_to(range.start).wrapping_sub(1);
        let is_there = self.range_at(index) == Some(range);
        is_there.then_some(index).ok_or(Error::NoDevice(range))
    }

    fn index_of_eventfd(&self, on: Ioeventfd) -> Result<usize, Error> {
        let index = self.eventfds.entries().partition_point(|(other, _)| other.key() < on.key());
        let is_there = self.eventfds.get(index).is_some_and(|(_, (other, _))| *other == on);
        is_there.then_some(index).ok_or(Error::NoEventfd(on))
    }

    /// The number of devices and of ioeventfds.
    pub(crate) fn len(&self) -> (usize, usize) {
        (self.devices.entries().len(), self.eventfds.entries().len())
    }

    /// The memory that the arrays take, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.devices.bytes() + self.eventfds.bytes()
    }

    fn range_at(&self, index: usize) -> Option<IoRange> {
        let (start, (len, _)) = self.devices.get(index)?;
        Some(IoRange { start, len: *len })
    }
}
