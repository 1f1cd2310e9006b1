//! The lines by which the machine's own devices interrupt: those of the IOAPIC.

use mayfly_x86::bare::ioapic;

use super::this_cpu;

/// Has a line interrupt the first processor, by its edges or while it is high.
pub(crate) fn enable(number: u32, is_edge: bool) {
    ioapic::enable(number, is_edge, this_cpu::apic_id(0));
}

/// Has a line interrupt nobody any more.
pub(crate) fn disable(number: u32) {
    ioapic::disable(number);
}
