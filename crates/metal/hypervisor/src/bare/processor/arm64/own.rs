//! The registers of the machine's own virtio devices, as far as their interrupts go (virtio 1.2, 4.2.2). A device is told
//! at once that its interrupt was seen: one that comes by a level would come again.

use core::ptr::with_exposed_provenance_mut;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::bare::processor::once::Once;

const INTERRUPT_STATUS: usize = 0x60;
const INTERRUPT_ACK: usize = 0x64;
/// The device has told of a change of its configuration, or asks for its reset.
const CHANGE: u32 = 2;

/// The devices that the machine is to have at most: a network card, a disk, and a console.
pub(crate) const MOST: usize = 3;

struct Registers {
    interrupt: u32,
    base: usize,
}

static REGISTERS: [Once<Registers>; MOST] = [const { Once::new() }; MOST];

/// Whether each device has told of a change. A device may ask for its reset before it can interrupt: so at first, too.
static CHANGES: [AtomicBool; MOST] = [const { AtomicBool::new(true) }; MOST];

/// Device `which` has its registers at `base`, and that interrupt. Once, before the interrupt is enabled.
///
/// # Safety
///
/// They are there, mapped as device memory.
pub(crate) unsafe fn set(which: usize, interrupt: u32, base: usize) {
    REGISTERS[which].set(Registers { interrupt, base });
}

/// The device whose interrupt that is.
pub(super) fn find(interrupt: u32) -> Option<usize> {
    let is_its =
        |device: &Once<Registers>| device.get().is_some_and(|it| it.interrupt == interrupt);
    REGISTERS.iter().position(is_its)
}

/// The interrupt of device `which` was seen.
pub(crate) fn acknowledge(which: usize) {
    let Some(Registers { base, .. }) = REGISTERS[which].get() else { return };
    let register = |offset| with_exposed_provenance_mut::<u32>(base + offset);
    // SAFETY: registers of the device, as `set` was promised. What it writes there tells what was seen, and nothing else.
    let status = unsafe {
        let status = register(INTERRUPT_STATUS).read_volatile();
        register(INTERRUPT_ACK).write_volatile(status);
        status
    };
    if status & CHANGE != 0 {
        CHANGES[which].store(true, Ordering::Release);
    }
}

/// Whether device `which` has told of a change since this was asked last.
pub(crate) fn take_change(which: usize) -> bool {
    CHANGES[which].swap(false, Ordering::Acquire)
}
