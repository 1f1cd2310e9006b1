//! A virtio device, as it is saved.

use mayfly_state::{Error, Kind, SectionReader, SectionWriter};

use super::{CONFIG, Mmio, USED, VERSION_1, status};
use crate::virtio::backend::Device;
use crate::virtio::queue::Queue;

/// The section that [`Mmio::save`] writes, whatever device it is of.
pub const STATE: Kind = Kind::new("virtio", 2);

/// Requests of the driver are under way: its state is saved once they are given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the device has {requests} requests under way: they are given back before it is saved")]
pub struct NotDrained {
    /// How many.
    pub requests: u32,
}

impl<D: Device> Mmio<D> {
    /// Writes what it is into a section of kind [`STATE`]. What its driver has made available, and was not taken, is in
    /// the guest's memory, and is served by the one that is loaded. What is behind the device is not part of it: the bytes
    /// of a disk, the generator of an entropy source.
    ///
    /// # Errors
    ///
    /// [`NotDrained`]: frames were taken, and not given back.
    pub fn save(&self, to: &mut SectionWriter<'_, '_>) -> Result<(), NotDrained> {
        self.check_drained()?;
        to.u32(D::ID);
        to.u64(self.features);
        to.u32(self.device_features_word);
        to.u32(self.driver_features_word);
        to.u32(self.selected);
        to.u32(self.status);
        to.u32(self.reasons());
        to.u32(D::QUEUES as u32);
        for queue in &self.queues[..D::QUEUES] {
            queue.save(to);
        }
        self.device.save(to);
        Ok(())
    }

    /// Becomes what was saved. The embedder has the queues looked at then, and drives its interrupt line: a notification
    /// that came before it was saved is not in its state. Frames that were taken before are given back no more.
    ///
    /// # Errors
    ///
    /// [`Error`] names a field that no device like this one could have come to. The device is as it was.
    pub fn load(&mut self, mut from: SectionReader<'_>) -> Result<(), Error> {
        from.expect_u32("device", D::ID)?;
        let features = from.u64("features")?;
        let device_features_word = from.u32("DeviceFeaturesSel")?;
        let driver_features_word = from.u32("DriverFeaturesSel")?;
        let selected = from.u32("QueueSel")?;
        let status = from.bits("Status", status::ALL)?;
        let has = |bit| status & bit != 0;
        if has(status::FEATURES_OK) {
            let is_offered = features & !self.offered() == 0 && features & VERSION_1 != 0;
            from.check("features", features, is_offered && self.device.may_take(features))?;
        }
        let drives = has(status::DRIVER_OK);
        from.check("Status", status.into(), !drives || has(status::FEATURES_OK))?;
        let interrupts = from.bits("InterruptStatus", USED | CONFIG)?;
        from.expect_u32("queues", D::QUEUES as u32)?;
        let mut queues = self.queues;
        for (index, queue) in (0..).zip(&mut queues[..D::QUEUES]) {
            from.of(index);
            *queue = Queue::load(&mut from)?;
        }
        from.of_all();
        let saved = self.device.saved(&mut from)?;
        from.end()?;

        self.begin_epoch();
        self.device.adopt(saved);
        self.queues = queues;
        self.selected = selected;
        self.features = features;
        self.device_features_word = device_features_word;
        self.driver_features_word = driver_features_word;
        self.status = status;
        self.interrupts = interrupts;
        self.untold = 0;
        Ok(())
    }

    /// Becomes what `other` is, a device of the same kind of which nothing is under way: as if that was saved, and loaded
    /// here.
    ///
    /// # Errors
    ///
    /// [`NotDrained`]. The device is as it was.
    pub fn go_on_as(&mut self, other: &Self) -> Result<(), NotDrained> {
        other.check_drained()?;
        self.begin_epoch();
        self.device.adopt(other.device.state());
        self.queues = other.queues;
        self.selected = other.selected;
        self.features = other.features;
        self.device_features_word = other.device_features_word;
        self.driver_features_word = other.driver_features_word;
        self.status = other.status;
        self.interrupts = other.reasons();
        self.untold = 0;
        Ok(())
    }

    /// What its driver has been told of, and is to be told of later: one that goes on tells of it at once.
    const fn reasons(&self) -> u32 {
        self.interrupts | if self.is_untold() { USED } else { 0 }
    }

    const fn check_drained(&self) -> Result<(), NotDrained> {
        match self.under_way {
            0 => Ok(()),
            requests => Err(NotDrained { requests }),
        }
    }
}
