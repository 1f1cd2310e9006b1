//! Devices behind registers in memory (`virtio,mmio`).

use core::ptr::{NonNull, with_exposed_provenance_mut};

use mayfly_drivers::{MmioError, MmioTransport, Registers, Transport, VirtIOHeader};
use mayfly_hypervisor::tree::VirtioPlace;

use super::{Found, Offer};
use crate::bare::processor::own::Status;
use crate::bare::threads::console::say;

/// Starts what is at these places.
pub(super) fn find(places: &[VirtioPlace], found: &mut Found) {
    for place in places {
        let at = place.region.start;
        let size = place.region.end - at;
        let header = with_exposed_provenance_mut::<VirtIOHeader>(at as usize);
        let Some(header) = NonNull::new(header) else { continue };
        if size < size_of::<VirtIOHeader>() as u64 {
            continue;
        }
        // SAFETY: the device tree says that such registers are there, they are mapped as a device, and only this is made
        // of them.
        let registers = match unsafe { MmioTransport::new(header, size as usize) } {
            Ok(registers) => registers,
            // There is no device behind them.
            Err(MmioError::InvalidDeviceID(_)) => continue,
            Err(why) => {
                say!("mayfly: the device at {at:#x} is not used: {why}");
                continue;
            }
        };
        let (line, status) = (place.line, Status::Mmio(at as usize));
        let kind = registers.device_type();
        let registers = Registers::Mmio(registers);
        found.take(kind, format_args!("{at:#x}"), || Ok(Offer { registers, line, status }));
    }
}
