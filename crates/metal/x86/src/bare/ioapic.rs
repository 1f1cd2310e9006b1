//! The machine's IOAPIC, where a PC has its first: lines of devices, by edges.

use core::ptr::with_exposed_provenance_mut;

use super::apic::FIRST_LINE;

/// The page of its registers.
pub const PAGE: u64 = 0xfec0_0000;
/// Lines that have a vector.
pub const LINES: u32 = 24;

const SELECT: usize = 0x00;
const WINDOW: usize = 0x10;
const FIRST_ENTRY: u32 = 0x10;
const MASKED: u32 = 1 << 16;
const BY_LEVEL: u32 = 1 << 15;

fn write(register: u32, value: u32) {
    let at = |offset| with_exposed_provenance_mut::<u32>(PAGE as usize + offset);
    // SAFETY: registers of the IOAPIC, which are mapped uncached; they change no memory.
    unsafe {
        at(SELECT).write_volatile(register);
        at(WINDOW).write_volatile(value);
    }
}

fn set(line: u32, to: u32, entry: u32) {
    if line < LINES {
        let register = FIRST_ENTRY + 2 * line;
        write(register, MASKED);
        write(register + 1, to << 24);
        write(register, entry);
    }
}

/// Has a line interrupt the processor whose APIC has the ID `to`, by its edges or while it is high.
pub fn enable(line: u32, is_edge: bool, to: u32) {
    let level = if is_edge { 0 } else { BY_LEVEL };
    set(line, to, (u32::from(FIRST_LINE) + line) | level);
}

/// Has a line interrupt nobody.
pub fn disable(line: u32) {
    set(line, 0, MASKED);
}
