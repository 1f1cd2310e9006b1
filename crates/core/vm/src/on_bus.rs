//! Taking a vCPU's access to a device.

use mayfly_iobus::{IoBus, LastHit, WriteHit};
use mayfly_srcu::Section;
use mayfly_stage2::Format;

use crate::Device;
use crate::guest::Guest;

/// A bus, as a vCPU uses it.
pub(crate) struct OnBus<'a, D: Device + 'static> {
    pub(crate) bus: &'a IoBus<D>,
    pub(crate) last: &'a mut LastHit,
    pub(crate) vcpu: u32,
}

impl<D: Device + 'static> OnBus<'_, D> {
    /// Takes an access to its device. Returns whether there is one, and it has answered.
    pub(crate) fn access<F: Format>(
        self,
        section: &impl Section,
        address: u64,
        write: bool,
        guest: &mut impl Guest<F>,
    ) -> bool {
        let Self { bus, last, vcpu } = self;
        let data = guest.data();
        let len = data.len() as u64;
        if write {
            match bus.find_write(section, last, address, len, little_endian(data)) {
                Some(WriteHit::Eventfd(device)) => device.write(vcpu, 0, data),
                Some(WriteHit::Device(hit)) => hit.device.write(vcpu, hit.offset, data),
                None => return false,
            }
        } else {
            let Some(hit) = bus.find(section, last, address, len) else { return false };
            hit.device.read(vcpu, hit.offset, data);
        }
        guest.answered();
        true
    }
}

/// The value of at most eight bytes.
fn little_endian(data: &[u8]) -> u64 {
    data.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}
