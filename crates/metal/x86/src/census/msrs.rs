//! All MSRs of the ranges that a permission map has (APM volume 2, 15.11), and those of KVM's clock.

use super::values::{PATTERNS, say_ranges, shows};
use crate::kernel::console::say;
use crate::kernel::tried::{Outcome, with};

const RDMSR: &[u8] = &[0x0f, 0x32];
const WRMSR: &[u8] = &[0x0f, 0x30];

/// The most that are read, or that take a pattern.
pub(super) const MOST: usize = 128;

/// The counter, which is another each time; and the local APIC's current count, which is, too.
const CHANGE: [u32; 2] = [0x10, 0x839];

/// What a VM that writes a pattern there would not go on from: the mode of its APIC and of its processor. And where the time is told,
/// which is written to its memory.
const STEER: [u32; 3] = [0x1b, 0xc000_0080, 0x4b56_4d01];
/// The local APIC, which a pattern would have interrupt.
const APIC: core::ops::Range<u32> = 0x800..0x900;
const DEADLINE: u32 = 0x6e0;

fn all() -> impl Iterator<Item = u32> {
    let clock = [0x4b56_4d00, 0x4b56_4d01];
    (0..0x2000).chain(clock).chain(0xc000_0000..0xc000_2000).chain(0xc001_0000..0xc001_2000)
}

/// Reads one.
pub(super) fn read(msr: u32) -> Option<u64> {
    match with(RDMSR, 0, msr.into(), 0) {
        Outcome::Done(low, high) => Some(high << 32 | low & 0xffff_ffff),
        Outcome::Raised(_) => None,
    }
}

/// Writes one. Whether it takes the value.
pub(super) fn write(msr: u32, value: u64) -> bool {
    matches!(with(WRMSR, value & 0xffff_ffff, msr.into(), value >> 32), Outcome::Done(..))
}

/// Those that are read, and how many there are; not those that say something else each time.
pub(super) fn readable() -> ([u32; MOST], usize) {
    list(all().filter(|msr| !CHANGE.contains(msr) && read(*msr).is_some()))
}

fn list(msrs: impl Iterator<Item = u32>) -> ([u32; MOST], usize) {
    let (mut list, mut count) = ([0; MOST], 0);
    for msr in msrs {
        list[count] = msr;
        count += 1;
    }
    (list, count)
}

/// Says which are read. How many show the pattern.
pub(super) fn tell_read() -> u32 {
    let mut shown = 0;
    let reads = |msr: &u32| {
        let value = read(*msr);
        if let Some(value) = value.filter(|value| shows(*value)) {
            say!("FAILED: the MSR {msr:#x} shows the pattern: {value:#x}");
            shown += 1;
        }
        value.is_some()
    };
    say_ranges("MSRs that are read", all().filter(reads));
    shown
}

/// Says which are written: they take what they read as, or zero.
pub(super) fn tell_written() {
    say_ranges("MSRs that are written", all().filter(|msr| write(*msr, read(*msr).unwrap_or(0))));
}

/// Those that take a pattern, all of it or its lower half, and how many there are. Says which.
pub(super) fn tell_taking() -> ([u32; MOST], usize) {
    let tried = |msr: &u32| {
        !(STEER.contains(msr) || CHANGE.contains(msr) || APIC.contains(msr) || *msr == DEADLINE)
    };
    let takes = |msr: &u32| {
        let [pattern, _] = PATTERNS;
        tried(msr) && read(*msr).is_some() && put(*msr, pattern)
    };
    let taking = list(all().filter(takes));
    say_ranges("MSRs that take a pattern", taking.0[..taking.1].iter().copied());
    taking
}

/// Has it have a pattern, or its lower half.
pub(super) fn put(msr: u32, pattern: u64) -> bool {
    write(msr, pattern) || write(msr, pattern & 0xffff_ffff)
}
