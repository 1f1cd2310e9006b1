//! One version of a bus.

use mayfly_platform::memory::OutOfMemory;

use crate::handle::Handle;
use crate::ioeventfd::Write;
use crate::table::Table;
use crate::{Error, Hit, IoRange, Ioeventfd};

/// How many devices a bus can have: `NR_IOBUS_DEVS` of Linux' `include/linux/kvm_host.h`. Ioeventfds are not counted there
/// (`kvm_io_bus_register_dev`: their number is bounded by that of open files), nor here.
pub const MAX_DEVICES: usize = 1000;

/// Devices by the start of their ranges, which do not overlap; ioeventfds by [`Ioeventfd::key`], no two of which collide.
pub(crate) struct Snapshot<D> {
    devices: Table<Occupied<D>>,
    eventfds: Table<Signalled<D>>,
}

struct Occupied<D> {
    len: u64,
    device: Handle<D>,
}

struct Signalled<D> {
    on: Ioeventfd,
    device: Handle<D>,
}

impl<D> Occupied<D> {
    /// Whether `len` bytes at `offset` are all this device's, and at least one is.
    #[inline]
    fn covers(&self, offset: u64, len: u64) -> bool {
        // No bytes at all make a `last` that is past every end.
        offset.checked_add(len.wrapping_sub(1)).is_some_and(|last| last < self.len)
    }
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
        if let Some(device) = self.eventfd_at(*last, write) {
            return Some(device);
        }
        let up_to = self.eventfds.up_to(write.address);
        let (address, _) = self.eventfds.get(up_to.wrapping_sub(1))?;
        if address != write.address {
            return None;
        }
        let candidates = &self.eventfds.entries()[..up_to];
        let after = candidates.partition_point(|entry| entry.on.key() <= write.key());
        let index = after.wrapping_sub(1);
        let device = self.eventfd_at(index, write)?;
        *last = index;
        Some(device)
    }

    #[inline]
    fn device_at(&self, index: usize, address: u64, len: u64) -> Option<Hit<'_, D>> {
        let (start, entry) = self.devices.get(index)?;
        let offset = address.checked_sub(start)?;
        entry.covers(offset, len).then(|| Hit { device: entry.device.device(), offset })
    }

    #[inline]
    fn eventfd_at(&self, index: usize, write: &Write) -> Option<&D> {
        let (_, entry) = self.eventfds.get(index)?;
        entry.on.matches(write).then(|| entry.device.device())
    }
}

/// Writers.
impl<D> Snapshot<D> {
    pub(crate) const EMPTY: Self = Self { devices: Table::EMPTY, eventfds: Table::EMPTY };

    /// # Safety
    ///
    /// The copy's devices are looked up only where this one's may be.
    pub(crate) unsafe fn copy(&self) -> Result<Self, OutOfMemory> {
        // SAFETY: an entry's only part that is not plain data is its handle, whose promise the caller repeats.
        unsafe { Ok(Self { devices: self.devices.copy()?, eventfds: self.eventfds.copy()? }) }
    }

    pub(crate) fn place(&mut self, range: IoRange, device: Handle<D>) -> Result<(), Error> {
        let end = range.end()?;
        let index = self.devices.up_to(range.start);
        let before = index.checked_sub(1).and_then(|index| self.range_at(index));
        let after = self.range_at(index);
        // Registered ranges do not wrap.
        if let Some(with) = before.filter(|before| range.start - before.start < before.len) {
            return Err(Error::Overlap { range, with });
        }
        if let Some(with) = after.filter(|after| after.start < end) {
            return Err(Error::Overlap { range, with });
        }
        if self.devices.entries().len() >= MAX_DEVICES {
            return Err(Error::Full(range));
        }
        Ok(self.devices.insert(index, range.start, Occupied { len: range.len, device })?)
    }

    pub(crate) fn take(&mut self, range: IoRange) -> Result<Handle<D>, Error> {
        let index = self.devices.up_to(range.start).wrapping_sub(1);
        if self.range_at(index) == Some(range) {
            Ok(self.devices.remove(index).device)
        } else {
            Err(Error::NoDevice(range))
        }
    }

    pub(crate) fn place_eventfd(&mut self, on: Ioeventfd, device: Handle<D>) -> Result<(), Error> {
        on.check()?;
        let up_to = &self.eventfds.entries()[..self.eventfds.up_to(on.address)];
        let same_address = up_to.partition_point(|entry| entry.on.address < on.address);
        if let Some(entry) = up_to[same_address..].iter().find(|entry| on.collides(entry.on)) {
            return Err(Error::Collision { eventfd: on, with: entry.on });
        }
        let index = up_to.partition_point(|entry| entry.on.key() < on.key());
        Ok(self.eventfds.insert(index, on.address, Signalled { on, device })?)
    }

    pub(crate) fn take_eventfd(&mut self, on: Ioeventfd) -> Result<Handle<D>, Error> {
        let index = self.eventfds.entries().partition_point(|entry| entry.on.key() < on.key());
        match self.eventfds.get(index) {
            Some((_, entry)) if entry.on == on => Ok(self.eventfds.remove(index).device),
            _ => Err(Error::NoEventfd(on)),
        }
    }

    /// Every device, those of ioeventfds included.
    pub(crate) fn handles(&self) -> impl Iterator<Item = &Handle<D>> {
        let devices = self.devices.entries().iter().map(|entry| &entry.device);
        devices.chain(self.eventfds.entries().iter().map(|entry| &entry.device))
    }

    /// The memory that the arrays take, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.devices.bytes() + self.eventfds.bytes()
    }

    fn range_at(&self, index: usize) -> Option<IoRange> {
        let (start, entry) = self.devices.get(index)?;
        Some(IoRange { start, len: entry.len })
    }
}
