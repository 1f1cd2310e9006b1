//! All ports, by one, two and four bytes.

use super::values::{say_ranges, shows};
use crate::kernel::console::say;
use crate::kernel::tried::{Outcome, with};

/// IN and OUT, by the number of bytes.
const IN: [(u16, &[u8]); 3] = [(1, &[0xec]), (2, &[0x66, 0xed]), (4, &[0xed])];
const OUT: [(u16, &[u8]); 3] = [(1, &[0xee]), (2, &[0x66, 0xef]), (4, &[0xef])];

/// What a VM that writes anything there would not go on from, or could not be heard any more: its power, and its UART.
const STEER: [core::ops::Range<u32>; 2] = [0x3f8..0x400, 0x600..0x603];

/// The UART's scratch register, and the clock's index.
const KEEP: [u16; 2] = [0x3ff, 0x70];

/// Those that keep what was written.
pub(super) fn kept() -> impl Iterator<Item = (u16, u64)> {
    KEEP.into_iter().map(|port| (port, value(with(IN[0].1, 0, 0, port.into()), 1)))
}

/// Has them have a pattern.
pub(super) fn put(pattern: u64) {
    for port in KEEP {
        let _ = with(OUT[0].1, pattern & 0x7f, 0, port.into());
    }
}

fn value(said: Outcome, bytes: u16) -> u64 {
    match said {
        Outcome::Done(rax, _) => rax & (u64::MAX >> (64 - 8 * bytes)),
        Outcome::Raised(_) => u64::MAX,
    }
}

/// Writes to all that do not steer the VM.
pub(super) fn write_all() {
    let [pattern, _] = super::values::PATTERNS;
    let (mut written, mut faults) = (0, 0);
    for (bytes, code) in OUT {
        for port in 0..=u16::MAX {
            let (first, behind) = (u32::from(port), u32::from(port) + u32::from(bytes));
            if STEER.iter().any(|steer| first < steer.end && behind > steer.start) {
                continue;
            }
            match with(code, pattern, 0, port.into()) {
                Outcome::Done(..) => written += 1,
                Outcome::Raised(_) => faults += 1,
            }
        }
    }
    say!("ports: {written} writes were tried, and {faults} were faults");
}

/// Says which read as anything but all ones.
pub(super) fn tell_read() {
    let mut faults = 0;
    for (bytes, code) in IN {
        let is_there = |port: &u32| {
            let said = with(code, 0, 0, u64::from(*port));
            let value = value(said, bytes);
            if matches!(said, Outcome::Raised(_)) {
                faults += 1;
            } else if shows(value) {
                say!("FAILED: the port {port:#x} shows the pattern: {value:#x}");
            }
            value != u64::MAX >> (64 - 8 * bytes)
        };
        let what = ["ports that have something, by 1 byte", "by 2 bytes", "by 4 bytes"];
        say_ranges(what[usize::from(bytes / 2)], (0..0x1_0000).filter(is_there));
    }
    say!("ports: {faults} reads were faults");
}
