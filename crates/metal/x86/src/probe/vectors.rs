//! Vector registers, which vCPUs have in turn: two of them, each with a pattern of its own.

use core::arch::asm;
use core::ptr::addr_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use x86_64::instructions::tables::sgdt;
use x86_64::registers::control::{Cr3, Cr4, Cr4Flags};
use x86_64::registers::xcontrol::XCr0;

use crate::kernel::console::say;

core::arch::global_asm!(include_str!("second.S"), options(att_syntax));

unsafe extern "C" {
    static second_start: u8;
    static second_end: u8;
    static second_long: u8;
}

/// Where the second vCPU starts: its vector times 4096.
const START: u64 = 0x9_0000;
const APIC: u64 = 0xfee0_0000;

/// The parts of an area that have registers: those of x87, of which each has 10 bytes of 16, those of SSE, and the upper halves
/// of AVX.
const X87: core::ops::Range<usize> = 32..160;
const SSE: core::ops::Range<usize> = 160..416;
const AVX: core::ops::Range<usize> = 576..832;
const PRESENT: usize = 512;

#[repr(C, align(64))]
struct Area([u8; 832]);

fn is_register(at: usize) -> bool {
    X87.contains(&at) && at % 16 < 10 || SSE.contains(&at) || AVX.contains(&at)
}

/// All registers have this in each byte from here on.
fn fill(pattern: u8) {
    let mut area = Area([0; 832]);
    for (at, byte) in area.0.iter_mut().enumerate() {
        if is_register(at) {
            *byte = pattern;
        }
    }
    area.0[..2].copy_from_slice(&0x37f_u16.to_le_bytes());
    area.0[4] = 0xff;
    area.0[24..28].copy_from_slice(&0x1f80_u32.to_le_bytes());
    area.0[PRESENT] = 7;
    // SAFETY: this program uses none of the registers, and the area is as XRSTOR takes it.
    unsafe {
        asm!("xrstor64 [{}]", in(reg) &raw const area, in("eax") 7, in("edx") 0, options(nostack, readonly));
    }
}

/// How many bytes of the registers are not this.
fn others(pattern: u8) -> u64 {
    let mut area = Area([0; 832]);
    // SAFETY: the area is as large as what XSAVE writes.
    unsafe {
        asm!("xsave64 [{}]", in(reg) &raw mut area, in("eax") 7, in("edx") 0, options(nostack));
    }
    let bytes = area.0.iter().enumerate();
    bytes.filter(|&(at, &byte)| is_register(at) && byte != pattern).count() as u64
}

fn turn_on(xcr0: u64) {
    // SAFETY: CPUID lists what is turned on, and this program does not use it.
    unsafe {
        Cr4::update(|flags| *flags |= Cr4Flags::OSFXSR | Cr4Flags::OSXSAVE);
        XCr0::write_raw(xcr0);
    }
}

/// Whose turn it is to look at its registers: that of the first, if it is even.
static TURN: AtomicU32 = AtomicU32::new(0);
/// How many turns each has.
const TURNS: u32 = 5;
/// What each has in its registers, and as its XCR0 while the other has its turn.
const PATTERNS: [u8; 2] = [0x5a, 0xa7];
const XCR0: [u64; 2] = [7, 3];

/// Takes turns with the other vCPU, each of which has the processor in turn. How many bytes, and how many values of XCR0, were
/// not its own.
fn take_turns(own: usize) -> u64 {
    turn_on(7);
    fill(PATTERNS[own]);
    turn_on(XCR0[own]);
    let mut wrong = 0;
    for turn in 0..TURNS {
        while TURN.load(Ordering::Acquire) != 2 * turn + own as u32 {
            core::hint::spin_loop();
        }
        wrong += u64::from(XCr0::read_raw() != XCR0[own]);
        turn_on(7);
        wrong += others(PATTERNS[own]);
        turn_on(XCR0[own]);
        TURN.store(2 * turn + own as u32 + 1, Ordering::Release);
    }
    wrong
}

/// What the second has found: bytes that were not as after reset, and what was not its own.
static FOUND: [AtomicU64; 2] = [const { AtomicU64::new(u64::MAX) }; 2];

/// From `second.S`: the second vCPU.
#[unsafe(no_mangle)]
extern "C" fn second() {
    turn_on(7);
    let stale = others(0);
    let wrong = take_turns(1);
    for (found, count) in FOUND.iter().zip([stale, wrong]) {
        found.store(count, Ordering::Relaxed);
    }
    TURN.fetch_add(1, Ordering::Release);
}

/// Starts the second vCPU, and takes turns with it.
pub(super) fn two_vcpus() {
    // The second finds nothing of it.
    fill(PATTERNS[0]);
    start();
    let wrong = take_turns(0);
    while TURN.load(Ordering::Acquire) <= 2 * TURNS {
        core::hint::spin_loop();
    }
    let [stale, others] = FOUND.each_ref().map(|found| found.load(Ordering::Relaxed));
    if (wrong, others, stale) != (0, 0, 0) {
        say!(
            "FAILED: of two vCPUs, {wrong} and {others} bytes were not their own, and {stale} not as after reset"
        );
    }
}

/// Has the second vCPU start.
fn start() {
    let write = |at: u64, value: u32| {
        let place = core::ptr::with_exposed_provenance_mut::<u32>(at as usize);
        // SAFETY: memory below 1 MiB that nothing else has, or a register of the APIC.
        unsafe { place.write_unaligned(value) }
    };
    let (first, last) = (addr_of!(second_start), addr_of!(second_end));
    let count = last as usize - first as usize;
    for offset in 0..count {
        // SAFETY: the code, and memory as above.
        unsafe {
            let place = core::ptr::with_exposed_provenance_mut::<u8>(START as usize + offset);
            place.write_volatile(first.add(offset).read());
        }
    }
    // Its end: tables, the limit and the base of descriptors, and where it goes on.
    let end = START + count as u64;
    let descriptors = sgdt();
    write(end - 16, Cr3::read().0.start_address().as_u64() as u32);
    write(end - 12, u32::from(descriptors.limit) | (descriptors.base.as_u64() as u32) << 16);
    write(
        end - 8,
        (descriptors.base.as_u64() >> 16) as u32 & 0xffff | (addr_of!(second_long) as u32) << 16,
    );
    write(end - 4, addr_of!(second_long) as u32 >> 16 | 0x10 << 16);
    for icr in [0x4500, 0x4600 | (START >> 12) as u32] {
        write(APIC + 0x310, 1 << 24);
        write(APIC + 0x300, icr);
    }
}
