//! The machine's own devices: a network card, a disk and a console, if it has them. All are virtio, behind registers in
//! memory, and the device tree says where. A machine without them works as well.
//!
//! **Interrupts.** The processor that sees a device's interrupt acknowledges it at once, and rings the bell of the thread
//! that serves the device. This thread is the only one that takes what the device has done. It sleeps otherwise.
//!
//! **Memory.** A device reaches frames that are the hypervisor's, and no frame of a VM: what it transfers is copied. The
//! frames are allocated when the machine starts.

use mayfly_drivers::{DeviceType, MmioError, MmioTransport, Transport, VirtIOHeader};
use mayfly_hypervisor::tree::VirtioPlace;

use crate::bare::processor::{own, shared, this_cpu};
use crate::bare::threads::console::say;

pub(crate) mod card;
pub(crate) mod console;
pub(crate) mod disk;
mod dma;
pub(crate) mod tenant;

/// A device of the machine, by its registers.
type Registers = MmioTransport<'static>;

/// The numbers of the devices.
const CARD: usize = 0;
const DISK: usize = 1;
const CONSOLE: usize = 2;

/// Starts the first card, the first disk and the first console that are at these places.
pub(crate) fn find(places: &[VirtioPlace]) {
    let mut has = [false; own::MOST];
    for place in places {
        let at = place.region.start;
        let size = place.region.end - at;
        let Some(header) = core::ptr::NonNull::new(core::ptr::with_exposed_provenance_mut::<
            VirtIOHeader,
        >(at as usize)) else {
            continue;
        };
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
        let (which, what) = match registers.device_type() {
            DeviceType::Network => (CARD, "network card"),
            DeviceType::Block => (DISK, "disk"),
            DeviceType::Console => (CONSOLE, "console"),
            _ => continue,
        };
        if core::mem::replace(&mut has[which], true) {
            say!("mayfly: the {what} at {at:#x} is not used: there is another");
            continue;
        }
        // SAFETY: as above; of the interrupt's registers nothing is made.
        unsafe { own::set(which, place.line.number, at as usize) };
        let started = match which {
            CARD => card::set(registers),
            DISK => disk::set(registers),
            _ => console::set(registers),
        };
        match started {
            Ok(()) => {
                shared::gic().set_edge(place.line.number, place.line.is_edge);
                shared::gic().enable_shared(place.line.number, this_cpu::affinity(0));
                // It may have interrupted while it was started: of an edge then nothing is left now, and there is no other as
                // long as it was not seen. Its thread, which is not started yet, looks at the device first.
                own::acknowledge(which);
            }
            Err(why) => say!("mayfly: the {what} at {at:#x} is not used: {why}"),
        }
    }
}
