//! The registers of the machine's own virtio devices, as far as their interrupts go (virtio 1.2, 4.2.2 and 4.1.4.5), and the
//! lines by which they interrupt.
//!
//! A device is told at once that its interrupt was seen: one that comes by a level would come again. On a line of several
//! devices, all of them are asked. A line that stays high, though none of them asks for it, is turned off: another device
//! holds it, which nobody serves ([`Strays`]). Its devices are not heard from then on.

use core::ptr::with_exposed_provenance_mut;
use core::sync::atomic::{AtomicBool, Ordering};

use mayfly_hypervisor::board::Line;
use mayfly_hypervisor::stray::Strays;

use super::arch::lines;
use super::once::Once;

const INTERRUPT_STATUS: usize = 0x60;
const INTERRUPT_ACK: usize = 0x64;
/// The device has used a buffer; it has told of a change of its configuration, or asks for its reset.
const USED: u32 = 1;
const CHANGE: u32 = 2;

/// The devices that the machine is to have at most: a network card, a disk, and a console.
pub(crate) const MOST: usize = 3;

/// Where a device says why it has interrupted.
#[derive(Clone, Copy)]
pub(crate) enum Status {
    /// Behind registers in memory that begin there. It is told what was seen.
    Mmio(usize),
    /// In that byte of a device on a PCI bus, whose reading tells it.
    Pci(usize),
}

struct Device {
    line: Line,
    status: Status,
}

static DEVICES: [Once<Device>; MOST] = [const { Once::new() }; MOST];

/// Whether each device has told of a change. A device may ask for its reset before it can interrupt: so at first, too.
static CHANGES: [AtomicBool; MOST] = [const { AtomicBool::new(true) }; MOST];

/// Whether each device's line was turned off.
static UNHEARD: [AtomicBool; MOST] = [const { AtomicBool::new(false) }; MOST];

/// The interrupts of the line of each device; of several on a line, the first one's count.
static STRAYS: [Strays; MOST] = [const { Strays::new() }; MOST];

/// Device `which` interrupts by that line from now on, and says there why. Once for each.
///
/// # Safety
///
/// It does, and the registers are mapped as device memory.
pub(crate) unsafe fn set(which: usize, line: Line, status: Status) {
    let is_new = !is_line(line.number);
    let (number, is_edge) = (line.number, line.is_edge);
    DEVICES[which].set(Device { line, status });
    if is_new {
        lines::enable(number, is_edge);
    }
    // It may have interrupted while it was started: of an edge then nothing is left now, and there is no other as long as it
    // was not seen. Its thread, which is not started yet, looks at the device first.
    acknowledge(which);
}

/// The devices on a line.
fn on_line(number: u32) -> impl Iterator<Item = usize> {
    let is_on = move |device: &Device| device.line.number == number;
    (0..MOST).filter(move |which| DEVICES[*which].get().is_some_and(is_on))
}

/// Whether that interrupt is the line of a device.
pub(super) fn is_line(number: u32) -> bool {
    on_line(number).next().is_some()
}

/// Serves an interrupt of a line: `ring` is called for each device that has something to tell.
pub(crate) fn serve(number: u32, ring: impl Fn(usize)) {
    let mut is_asked_for = false;
    for which in on_line(number).filter(|which| acknowledge(*which)) {
        is_asked_for = true;
        ring(which);
    }
    let is_held = on_line(number).next().is_some_and(|first| STRAYS[first].note(is_asked_for));
    if is_held {
        lines::disable(number);
        for which in on_line(number) {
            UNHEARD[which].store(true, Ordering::Relaxed);
            CHANGES[which].store(true, Ordering::Release);
            ring(which);
        }
    }
}

/// The interrupt of device `which` was seen, if it was its own: whether it was.
fn acknowledge(which: usize) -> bool {
    let Some(Device { status, .. }) = DEVICES[which].get() else { return false };
    // SAFETY: registers of the device, as `set` was promised. What is written there tells what was seen, and nothing else.
    let told = unsafe {
        match *status {
            Status::Mmio(base) => {
                let register = |offset| with_exposed_provenance_mut::<u32>(base + offset);
                let told = register(INTERRUPT_STATUS).read_volatile();
                register(INTERRUPT_ACK).write_volatile(told);
                told
            }
            Status::Pci(at) => u32::from(with_exposed_provenance_mut::<u8>(at).read_volatile()),
        }
    };
    if told & CHANGE != 0 {
        CHANGES[which].store(true, Ordering::Release);
    }
    // A device that is lost answers with ones: its thread sees that it has changed, and it has not asked for anything.
    told & (USED | CHANGE) == told && told != 0
}

/// Whether device `which` has told of a change since this was asked last.
pub(crate) fn take_change(which: usize) -> bool {
    CHANGES[which].swap(false, Ordering::Acquire)
}

/// Whether device `which` is heard, as far as is known when it has told of a change.
pub(crate) fn is_heard(which: usize) -> bool {
    !UNHEARD[which].load(Ordering::Relaxed)
}
