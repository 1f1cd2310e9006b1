//! The registers of a device, as a guest that reads them from memory finds them.

use mayfly_devices::virtio::{CHANGE_ALONE, CHANGING, Device, Mmio, SIZE};

/// A copy of them.
pub(crate) struct Shown([u8; SIZE as usize]);

impl Shown {
    pub(crate) fn new<D: Device>(device: &Mmio<D>) -> Self {
        let mut shown = Self([0; SIZE as usize]);
        shown.renew(device, &(0..SIZE).step_by(4).collect::<Vec<_>>());
        shown
    }

    fn renew<D: Device>(&mut self, device: &Mmio<D>, words: &[u64]) {
        for &at in words {
            device.read(at, &mut self.0[at as usize..][..4]);
        }
    }

    /// The driver has written a register.
    pub(crate) fn is_written<D: Device>(&mut self, device: &Mmio<D>) {
        self.renew(device, &CHANGING);
        self.check(device);
    }

    /// The device has served its driver, or was changed by its embedder.
    pub(crate) fn is_served<D: Device>(&mut self, device: &Mmio<D>) {
        self.renew(device, &CHANGING[..CHANGE_ALONE]);
        self.check(device);
    }

    fn check<D: Device>(&self, device: &Mmio<D>) {
        assert!(self.0 == Self::new(device).0, "a word that is not said to change has changed");
    }
}
