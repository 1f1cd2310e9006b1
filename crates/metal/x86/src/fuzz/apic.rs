//! The local APIC, in whichever mode it is, and the IOAPIC: as a kernel needs them, and as none uses them.

use core::arch::asm;
use core::arch::x86_64::__cpuid;
use core::ptr::with_exposed_provenance_mut;

use mayfly_guests::wild::random::Random;

pub(super) const APIC: u64 = 0xfee0_0000;
pub(super) const IOAPIC: u64 = 0xfec0_0000;
const BASE: u32 = 0x1b;
/// Of it: by MSRs, and on.
const BY_MSRS: u64 = 1 << 10;
const ON: u64 = 1 << 11;

const PRIORITY: u64 = 0x80;
const END: u64 = 0xb0;
const SPURIOUS: u64 = 0xf0;
const COMMAND: u64 = 0x300;
const DESTINATION: u64 = 0x310;
const TIMER: u64 = 0x320;
const COUNT: u64 = 0x380;
const DIVISOR: u64 = 0x3e0;

const NMI: u64 = 0x4400;
const INIT: u64 = 0x4500;
const STARTUP: u64 = 0x4600;
/// The vector of the timer that ends an episode.
const VECTOR: u64 = 0x40;

fn read_msr(msr: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: an exception leads to the next episode.
    unsafe { asm!("rdmsr", in("ecx") msr, out("eax") low, out("edx") high, options(nostack)) }
    u64::from(high) << 32 | u64::from(low)
}

fn write_msr(msr: u32, value: u64) {
    // SAFETY: as above.
    unsafe {
        asm!("wrmsr", in("ecx") msr, in("eax") value as u32, in("edx") (value >> 32) as u32, options(nostack));
    }
}

fn is_by_msrs() -> bool {
    read_msr(BASE) & BY_MSRS != 0
}

fn write(register: u64, value: u64) {
    if is_by_msrs() {
        write_msr(0x800 + (register >> 4) as u32, value);
    } else {
        store(APIC + register, value);
    }
}

fn store(at: u64, value: u64) {
    // SAFETY: a register of a device's.
    unsafe { with_exposed_provenance_mut::<u32>(at as usize).write_volatile(value as u32) }
}

/// Sends what `command` says to the APIC of that number.
fn send(to: u64, command: u64) {
    if is_by_msrs() {
        write_msr(0x830, to << 32 | command);
    } else {
        store(APIC + DESTINATION, to << 24);
        store(APIC + COMMAND, command);
    }
}

/// As a kernel has it, in one of its modes.
pub(super) fn set_up(random: &mut Random) {
    // From either mode there is a way over "off".
    write_msr(BASE, APIC | u64::from(number() == 0) << 8);
    write_msr(BASE, APIC | u64::from(number() == 0) << 8 | ON);
    if random.once_in(2) {
        write_msr(BASE, APIC | u64::from(number() == 0) << 8 | ON | BY_MSRS);
    }
    write(SPURIOUS, 0x1ff);
    write(PRIORITY, 0);
    write(DIVISOR, 0xb);
}

/// What interrupted is over, and a timer ends this episode.
pub(super) fn begin(random: &mut Random) {
    write(END, 0);
    write(TIMER, VECTOR);
    write(COUNT, 20_000 + random.below(200_000));
}

/// Has the second vCPU begin in real mode at that page.
pub(super) fn start(page: u64) {
    send(1, INIT);
    send(1, STARTUP | page >> 12);
}

/// Has the first vCPU go on, wherever it is: also where it waits for its start-up.
pub(super) fn wake(random: &mut Random, page: u64) {
    if random.once_in(8) {
        send(0, INIT);
        send(0, STARTUP | page >> 12);
    } else {
        send(0, NMI);
    }
}

/// The number of this vCPU.
pub(super) fn number() -> usize {
    (__cpuid(1).ebx >> 24) as usize & 1
}

/// Writes what no kernel does.
pub(super) fn storm(random: &mut Random) {
    for _ in 0..=random.below(8) {
        match random.below(8) {
            0..=3 => {
                // All modes of delivery, levels, triggers and shorthands. INIT seldom, since the other has to begin anew behind it.
                let mut command = random.next() & 0xc_cfff;
                if command >> 8 & 7 == 5 && !random.once_in(16) {
                    command &= !(7 << 8);
                }
                let any = random.below(256);
                let to = random.one_of(&[0, 1, 2, 0xf, 0xff, any]);
                send(to, command);
            }
            4 => {
                let any = random.below(0x40) << 4;
                let value = random.next() >> random.below(64);
                if any != COMMAND {
                    write(any, value & 0xffff_ffff);
                }
            }
            5 => {
                let lvt = 0x320 + 0x10 * random.below(6);
                let mode = random.one_of(&[0, 1, 2, 3]) << 17;
                write(lvt, mode | random.next() & 0x1_07ff);
                write(COUNT, random.below(100_000));
            }
            6 => write(END, 0),
            _ => {
                store(IOAPIC, 0x10 + random.below(0x40));
                store(IOAPIC + 0x10, random.next() & 0x1_ffff);
            }
        }
    }
}
