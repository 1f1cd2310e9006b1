//! Devices are recognised by their drivers.

use crate::machine::{UART, holds, read8, read32, write32};

const CLOCK: usize = 0x0901_0000;

fn identification(device: usize) -> u64 {
    (0..8).rev().fold(0, |all, place| all << 8 | u64::from(read32(device + 0xfe0 + 4 * place)))
}

pub(crate) fn check() {
    holds!(
        identification(UART) == 0xb105_f00d_0034_1011,
        "the console is a PL011 of revision r1p5"
    );
    holds!(identification(CLOCK) == 0xb105_f00d_0014_1031, "the clock is a PL031 of revision 1");
    for offset in (0xfe0..0x1000).step_by(4) {
        let before = read32(CLOCK + offset);
        write32(CLOCK + offset, 0xdead_beef);
        let kept = read32(CLOCK + offset) == before && u32::from(read8(CLOCK + offset)) == before;
        holds!(kept, "the clock's register {offset:#x} is only read");
    }
}
