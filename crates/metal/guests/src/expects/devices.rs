//! Devices are recognised by their drivers.

use core::arch::asm;

use crate::machine::{UART, holds, read8, read32, write32};

const CLOCK: usize = 0x0901_0000;

fn identification(device: usize) -> u64 {
    (0..8).rev().fold(0, |all, place| all << 8 | u64::from(read32(device + 0xfe0 + 4 * place)))
}

/// What the console's first register of identification is to a load of big-endian data, and what its divisor is after a
/// store of 0x1234 as such data.
fn reversed() -> (u64, u32) {
    const DIVISOR: usize = UART + 0x24;
    let value: u64;
    // SAFETY: data are big-endian between the two writes, where no memory is accessed; the console prints whatever its
    // divisor is.
    unsafe {
        asm!(
            "mrs {before}, sctlr_el1",
            "orr {value}, {before}, #1 << 25",
            "msr sctlr_el1, {value}",
            "isb",
            "strh {half:w}, [{divisor}]",
            "ldr {value:w}, [{identification}]",
            "msr sctlr_el1, {before}",
            "isb",
            before = out(reg) _,
            value = out(reg) value,
            half = in(reg) 0x1234,
            divisor = in(reg) DIVISOR,
            identification = in(reg) UART + 0xfe0,
            options(nostack)
        );
    }
    (value, read32(DIVISOR))
}

pub(crate) fn check() {
    holds!(
        identification(UART) == 0xb105_f00d_0034_1011,
        "the console is a PL011 of revision r1p5"
    );
    holds!(identification(CLOCK) == 0xb105_f00d_0014_1031, "the clock is a PL031 of revision 1");
    let (byte, kept) = reversed();
    holds!(byte == 0x1100_0000, "big-endian data are read of a device in their order");
    holds!(kept == 0x3412, "and are written in it");
    for offset in (0xfe0..0x1000).step_by(4) {
        let before = read32(CLOCK + offset);
        write32(CLOCK + offset, 0xdead_beef);
        let kept = read32(CLOCK + offset) == before && u32::from(read8(CLOCK + offset)) == before;
        holds!(kept, "the clock's register {offset:#x} is only read");
    }
}
