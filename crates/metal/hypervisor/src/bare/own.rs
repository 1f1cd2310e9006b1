//! The machine's own devices: a network card, a disk and a console, if it has them. All are virtio, behind registers in
//! memory or on a PCI bus, and the device tree says where. A machine without them works as well.
//!
//! **Interrupts.** The processor that sees a device's interrupt acknowledges it at once, and rings the bell of the thread
//! that serves the device. This thread is the only one that takes what the device has done. It sleeps otherwise.
//!
//! **Memory.** A device reaches frames that are the hypervisor's, and no frame of a VM: what it transfers is copied. The
//! frames are allocated when the machine starts.

use alloc::string::{String, ToString};
use core::fmt;

use mayfly_drivers::{DeviceType, Registers};
use mayfly_hypervisor::board::{Line, Region};
use mayfly_hypervisor::tree::{PciPlace, VirtioPlace};

use crate::bare::processor::own;
use crate::bare::threads::console::say;

pub(crate) mod card;
pub(crate) mod console;
pub(crate) mod disk;
mod dma;
mod mmio;
mod pci;
pub(crate) mod tenant;

/// The numbers of the devices.
const CARD: usize = 0;
const DISK: usize = 1;
const CONSOLE: usize = 2;

/// Starts the first card, the first disk and the first console that the machine has: those behind registers in memory come
/// first. `reach` maps addresses of devices one to one, if there is memory for that.
pub(crate) fn find(
    virtio: &[VirtioPlace],
    buses: &[PciPlace],
    reach: &mut dyn FnMut(&Region) -> bool,
) {
    let mut found = Found::default();
    mmio::find(virtio, &mut found);
    pci::find(buses, &mut found, reach);
}

/// A device that could be used.
struct Offer {
    registers: Registers,
    line: Line,
    status: own::Status,
}

/// Which devices the machine has, as far as was looked.
#[derive(Default)]
struct Found([bool; own::MOST]);

impl Found {
    /// Takes a device of that kind, which `offer` prepares, if there is none yet. `at` says where it is. Returns whether it
    /// was started. One that was not is said to be not used, unless the machine needs none of that kind.
    fn take(
        &mut self,
        kind: DeviceType,
        at: impl fmt::Display,
        offer: impl FnOnce() -> Result<Offer, String>,
    ) -> bool {
        let (which, what) = match kind {
            DeviceType::Network => (CARD, "network card"),
            DeviceType::Block => (DISK, "disk"),
            DeviceType::Console => (CONSOLE, "console"),
            _ => return false,
        };
        let started = if self.0[which] {
            Err("there is another".into())
        } else {
            offer().and_then(|offer| start(which, offer))
        };
        if let Err(why) = &started {
            say!("mayfly: the {what} at {at} is not used: {why}");
            return false;
        }
        self.0[which] = true;
        true
    }
}

/// Starts a device, and has it interrupt.
fn start(which: usize, offer: Offer) -> Result<(), String> {
    let Offer { registers, line, status } = offer;
    let started = match which {
        CARD => card::set(registers),
        DISK => disk::set(registers),
        _ => console::set(registers),
    };
    started.map_err(|why| why.to_string())?;
    // SAFETY: it is a device of such registers, which whoever has made the offer has mapped. Beside those of the interrupt,
    // nothing is made of them here.
    unsafe { own::set(which, line, status) };
    Ok(())
}
