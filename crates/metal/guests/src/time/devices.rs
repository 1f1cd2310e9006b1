//! The registers of the guest's devices, and its console.

use core::ptr::with_exposed_provenance_mut;

const UART: usize = 0x0900_0000;

/// Writes to the register at `address`.
pub(super) fn set(address: usize, value: u32) {
    // SAFETY: a register of a device that every guest has, or of this guest's disk.
    unsafe { with_exposed_provenance_mut::<u32>(address).write_volatile(value) };
}

pub(super) fn say(text: &str) {
    text.bytes().for_each(|byte| set(UART, byte.into()));
}

pub(super) fn say_number(number: u64) {
    if number >= 10 {
        say_number(number / 10);
    }
    set(UART, u32::from(b'0') + (number % 10) as u32);
}
