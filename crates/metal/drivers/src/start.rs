//! The start of a device (virtio 1.2, 3.1.1), and whether it works still.

use virtio_drivers::Error;
use virtio_drivers::transport::{DeviceStatus, Transport};

use crate::Broken;

/// `VIRTIO_F_VERSION_1`.
const VERSION_1: u64 = 1 << 32;

/// Why a device is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// It is of before virtio 1.0.
    #[error("it is a legacy device (QEMU: -global virtio-mmio.force-legacy=false)")]
    Legacy,
    /// It has not become what it is after a reset.
    #[error("it does not end its reset")]
    Reset,
    /// It has not taken the features that it had offered.
    #[error("it does not take the features that it offers")]
    Features,
    /// A queue cannot be set up.
    #[error("one of its queues cannot be set up: {0}")]
    Queue(Error),
    /// Its configuration cannot be read.
    #[error("its configuration cannot be read")]
    Configuration,
    /// A disk whose blocks are not of 512 bytes.
    #[error("its blocks have {0} bytes, and not 512")]
    BlockSize(u32),
    /// A disk with a cache that cannot be flushed, as none may be (virtio 1.2, 5.2.6.2).
    #[error("it has a cache, and does not offer to flush it")]
    Cache,
    /// A disk that takes so little at a time.
    #[error("it takes only {0} bytes at a time")]
    SegmentSize(u32),
    /// A console that has no port but the one for a user.
    #[error("it has no ports (QEMU: -device virtserialport)")]
    Ports,
    /// There is no memory for its buffers.
    #[error("there is too little memory for its buffers")]
    NoMemory,
}

/// How often it is looked whether a device has ended its reset. A device on a PCI bus may take some time (virtio 1.2,
/// 4.1.4.3.2), and there is nothing that would tell.
const RESET_LOOKS: usize = 100_000;

/// Resets a device, and takes those of the features that it offers. Returns which it offers in all.
pub(crate) fn begin(transport: &mut impl Transport, features: u64) -> Result<u64, Unusable> {
    let known = DeviceStatus::ACKNOWLEDGE | DeviceStatus::DRIVER;
    transport.set_status(DeviceStatus::empty());
    if !(0..RESET_LOOKS).any(|_| transport.get_status().is_empty()) {
        return Err(Unusable::Reset);
    }
    transport.set_status(known);
    let offered = transport.read_device_features();
    if transport.requires_legacy_layout() || offered & VERSION_1 == 0 {
        return Err(Unusable::Legacy);
    }
    transport.write_driver_features(offered & (features | VERSION_1));
    transport.set_status(known | DeviceStatus::FEATURES_OK);
    if !transport.get_status().contains(DeviceStatus::FEATURES_OK) {
        return Err(Unusable::Features);
    }
    Ok(offered)
}

/// A device that works, until it is found broken: then it is stopped for good.
pub(crate) struct Started<T: Transport> {
    pub(crate) transport: T,
    broken: Option<Broken>,
}

impl<T: Transport> Started<T> {
    /// A device that was set up as `set_up` does, and begins to work then. One that cannot be is stopped.
    pub(crate) fn new<R>(
        mut transport: T,
        set_up: impl FnOnce(&mut T) -> Result<R, Unusable>,
    ) -> Result<(Self, R), Unusable> {
        match set_up(&mut transport) {
            Ok(made) => {
                transport.set_status(transport.get_status() | DeviceStatus::DRIVER_OK);
                Ok((Self { transport, broken: None }, made))
            }
            Err(why) => {
                stop(&mut transport);
                Err(why)
            }
        }
    }

    /// Why it is not used any more, if it is not.
    pub(crate) const fn broken(&self) -> Option<Broken> {
        self.broken
    }

    /// That as an error.
    pub(crate) fn check(&self) -> Result<(), Broken> {
        self.broken.map_or(Ok(()), Err)
    }

    /// What was found, unless that is that it is broken.
    pub(crate) fn unless_broken<R>(&mut self, found: Result<R, Broken>) -> Result<R, Broken> {
        found.inspect_err(|why| self.give_up(*why))
    }

    /// Looks whether it has failed, and asks for its reset (virtio 1.2, 2.1.2), or cannot be heard.
    pub(crate) fn look(&mut self, is_heard: bool) -> Result<(), Broken> {
        self.check()?;
        let asks = self.transport.get_status().contains(DeviceStatus::DEVICE_NEEDS_RESET);
        self.unless_broken(match () {
            () if asks => Err(Broken::NeedsReset),
            () if !is_heard => Err(Broken::Unheard),
            () => Ok(()),
        })
    }

    /// It is broken.
    pub(crate) fn give_up(&mut self, why: Broken) {
        self.broken = Some(why);
        stop(&mut self.transport);
    }
}

/// Stops a device for good.
fn stop(transport: &mut impl Transport) {
    transport.set_status(DeviceStatus::empty());
}

/// 32 bits of its configuration.
pub(crate) fn word(transport: &impl Transport, offset: usize) -> Result<u32, Unusable> {
    transport.read_config_space::<u32>(offset).map_err(|_| Unusable::Configuration)
}
