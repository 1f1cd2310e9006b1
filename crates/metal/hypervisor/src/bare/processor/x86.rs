//! The processor floor on x86-64: the local APIC and the IOAPIC of the machine, its first UART, and SVM.

use mayfly_hwtrace::Family;
use x86_64::instructions::port::Port;

pub(crate) use mayfly_x86::bare::{cpu, spin, timer, zero};

pub(crate) mod interrupts;
pub(crate) mod lines;
pub(crate) mod port;
pub(crate) mod shared;
pub(crate) mod this_cpu;
pub(crate) mod tlb;
pub(crate) mod traced;

/// What a processor lacks that has no random numbers of its own.
pub(crate) const NO_RANDOM: &str = "the processor has no RDRAND";

/// QEMU's device that ends it, where the machine has it.
const ENDS: u16 = 0xf4;
/// With the status 1, which is that of the program's end.
const ENDED: u32 = 0;

/// Powers the machine off: by QEMU's device, if it is there; otherwise this processor stops.
pub(crate) fn power_off() -> ! {
    // SAFETY: nothing has this port but that device.
    unsafe { Port::<u32>::new(ENDS).write(ENDED) }
    loop {
        x86_64::instructions::interrupts::disable();
        x86_64::instructions::hlt();
    }
}

/// The family of a format of nested tables.
pub(crate) fn family(_format: &str) -> Family {
    Family::Npt
}
