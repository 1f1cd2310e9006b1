//! Page tables with any entries.

use core::arch::asm;

use mayfly_guests::wild::random::Random;

/// The first tables, which the loader has made: the second level maps the first GiB.
const FIRST: u64 = 0xb000;

/// Four tables, one of each level.
#[repr(C, align(4096))]
pub(super) struct Tables([[u64; 512]; 4]);

impl Tables {
    pub(super) const fn new() -> Self {
        Self([[0; 512]; 4])
    }

    /// Fills them: the first GiB is as it was, all else is by entries of any kind, which mostly lead to each other, and at last anywhere. Uses them from now
    /// on. Returns an address that they may map.
    pub(super) fn take(&mut self, random: &mut Random, address: fn(&mut Random) -> u64) -> u64 {
        let at = self.0.as_ptr() as u64;
        for (level, table) in self.0.iter_mut().enumerate() {
            for (number, entry) in table.iter_mut().enumerate() {
                let next = at + 0x1000 * (level as u64 + 1).min(3);
                // Most have nothing that is reserved.
                let kept =
                    if random.once_in(8) { u64::MAX } else { 0x067 | u64::from(level == 2) << 7 };
                let attributes = random.next() & 0xfff0_0000_0000_0ffe & kept;
                let present = u64::from(!random.once_in(8));
                let is_last = level == 3 || level == 2 && attributes & 0x80 != 0;
                // Tables where no memory is end the VM.
                let place = match random.below(4) {
                    _ if !is_last && !random.once_in(2048) => next,
                    0 | 1 => address(random),
                    2 => next,
                    _ => random.next() & 0xff_ffff_f000,
                };
                *entry = match (level, number) {
                    (0, 0) => (at + 0x1000) | 3,
                    (1, 0) => FIRST | 3,
                    _ => attributes | present | place & 0xf_ffff_ffff_f000,
                };
            }
        }
        // Of the first GiB nothing is reached.
        let offset = random.next() & 0x7fff_ffff_ffff;
        let high = if offset >> 46 & 1 != 0 { 0xffff_8000_0000_0000 } else { 0 };
        // SAFETY: where this runs stays as it is.
        unsafe { asm!("mov cr3, {}", in(reg) at | random.next() & 0x18, options(nostack)) };
        high | offset | 1 << 30
    }
}
