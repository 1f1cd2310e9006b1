//! The registers of a vCPU: all are given a pattern, and all are read, before and behind a turn of the other VM.

use core::arch::asm;
use core::arch::x86_64::{__rdtscp, _rdtsc};

use x86_64::registers::control::{Cr4, Cr4Flags};
use x86_64::registers::xcontrol::XCr0;

use super::values::{Kind, Values};
use super::{found, msrs, ports};

core::arch::global_asm!(include_str!("turn.S"), options(att_syntax));

unsafe extern "C" {
    fn census_turn(registers: *mut [u64; 16], ticks: u64);
}

/// Ticks in which another had the processor: half of a slice, where a tick is a nanosecond.
const GAP: u64 = 5_000_000;
/// Bits of the counter that do not change in a test.
const UPPER: u32 = 40;

/// Of XCR0, what is read and written: x87, SSE and AVX; and what is on while the other VM has its turn, with the pattern, and without.
const ALL: u64 = 7;
const WITH_PATTERN: u64 = 3;
const BYTES: usize = 832;
/// Where the area has its header, which says what is in it.
const HEADER: usize = 512;

#[repr(C, align(64))]
struct Area([u64; BYTES / 8]);

/// Turns on what the rest uses: XSAVE, and the local APIC by its MSRs.
pub(super) fn turn_on() {
    const APIC_BASE: u32 = 0x1b;
    const BY_MSRS: u64 = 0xc00;
    // SAFETY: CPUID lists what is turned on, and this program does not use it.
    unsafe { Cr4::update(|flags| *flags |= Cr4Flags::OSFXSR | Cr4Flags::OSXSAVE) }
    if let Some(base) = msrs::read(APIC_BASE) {
        let _ = msrs::write(APIC_BASE, base | BY_MSRS);
    }
}

/// Lets the other VM have the processor, with these in the general registers, and returns with what is there then.
pub(super) fn turn(general: &mut [u64; 16]) {
    // SAFETY: it changes the array alone.
    unsafe { census_turn(general, GAP) }
}

/// Has all registers have the pattern: those MSRs, and all others.
pub(super) fn put(pattern: u64, its_msrs: &[u32]) {
    for msr in its_msrs {
        let _ = msrs::put(*msr, pattern);
    }
    // The counter, and registers of the local APIC that do not interrupt: LVTs that are masked, and the divisor.
    let _ = msrs::write(0x10, pattern & !0xff_ffff_ffff);
    for (msr, value) in [(0x832, 0x1_0000), (0x833, 0x1_0000), (0x834, 0x1_0000), (0x837, 0x1_0000)]
    {
        let _ = msrs::write(msr, value | pattern & 0xff | 0x10);
    }
    let _ = msrs::write(0x83e, pattern & 0xb);
    ports::put(pattern);
    vectors(pattern);
    // SAFETY: nothing is translated by CR2; PWT and PCD of CR3 change no translation; interrupts are off; no breakpoint is on.
    unsafe {
        asm!("mov cr2, {0}", "mov cr8, {1}", "mov dr0, {0}", "mov dr1, {0}", "mov dr2, {0}", "mov dr3, {0}",
            in(reg) pattern, in(reg) pattern & 0xf, options(nostack, nomem));
        asm!("mov dr6, {}", "mov dr7, {}", in(reg) 0xffff_0ff0 | pattern & 0xf,
            in(reg) 0x400 | pattern & 0x5555_0000, options(nostack, nomem));
        asm!("mov {0}, cr3", "and {0}, {1}", "or {0}, {2}", "mov cr3, {0}", out(reg) _,
            in(reg) !0x18_u64, in(reg) pattern >> 1 & 0x18, options(nostack));
        asm!("mov {0}, cr0", "btc {0}, 5", "mov cr0, {0}", out(reg) _, options(nostack, nomem));
        Cr4::update(|flags| flags.toggle(Cr4Flags::DEBUGGING_EXTENSIONS));
    }
}

/// Has the vector registers have the pattern, and XCR0 a value of its own.
fn vectors(pattern: u64) {
    let mut area = Area([0; BYTES / 8]);
    for (at, word) in area.0.iter_mut().enumerate() {
        // Registers, and where the last x87 instruction was; not the header, and what is reserved.
        let is_register = matches!(8 * at, 8..24 | 32..416 | 576..);
        *word = if is_register { pattern } else { 0 };
    }
    // The control words of x87 and SSE, with all exceptions masked; and all registers of x87 are in use.
    area.0[0] = 0x0000_00ff_0000_037f ^ (pattern & 0xc00);
    area.0[3] = 0x1f80 ^ (pattern & 0x6000);
    area.0[HEADER / 8] = ALL;
    // SAFETY: this program uses none of the registers, and the area is as XRSTOR takes it.
    unsafe {
        XCr0::write_raw(ALL);
        asm!("xrstor64 [{}]", in(reg) &raw const area, in("eax") u32::MAX, in("edx") u32::MAX, options(nostack, readonly));
        XCr0::write_raw(WITH_PATTERN);
    }
}

/// Reads everything. What a turn changes last is read first: RDTSCP, and the vector registers.
pub(super) fn read(values: &mut Values, general: &[u64; 16], its_msrs: &[u32]) {
    values.clear();
    let mut auxiliary = 0;
    // SAFETY: the scripts' machines have it.
    let _ = unsafe { __rdtscp(&raw mut auxiliary) };
    values.push(Kind::CounterAux, 0, auxiliary.into());
    let xcr0 = XCr0::read_raw();
    values.push(Kind::Xcr, 0, xcr0);
    let mut area = Area([0; BYTES / 8]);
    // SAFETY: CPUID lists these; the area is as large as what XSAVE writes.
    unsafe {
        XCr0::write_raw(ALL);
        asm!("xsave64 [{}]", in(reg) &raw mut area, in("eax") u32::MAX, in("edx") u32::MAX, options(nostack));
        XCr0::write_raw(xcr0);
    }
    for (at, word) in area.0.iter().enumerate() {
        values.push(Kind::Vector, 8 * at as u32, *word);
    }
    for (number, value) in debug_registers() {
        values.push(Kind::Debug, number, value);
    }
    for (number, value) in control_registers() {
        values.push(Kind::Control, number, value);
    }
    // RAX, RCX and RDX are in use in a turn, and RSP always; RSI is what a kernel is given.
    for (number, value) in (0..).zip(general) {
        if !matches!(number, 0 | 1 | 2 | 4) {
            values.push(Kind::General, number, *value);
        }
    }
    // SAFETY: every CPU of 64 bits has it.
    values.push(Kind::Counter, 0, unsafe { _rdtsc() } >> UPPER);
    for leaf in (0..0x10).chain(0x4000_0000..0x4000_0002).chain(0x8000_0000..0x8000_0009) {
        for (part, word) in (0..).zip(found::leaf(leaf, 0)) {
            values.push(Kind::Cpuid, leaf | part << 16, word.into());
        }
    }
    for msr in its_msrs {
        values.push(Kind::Msr, *msr, msrs::read(*msr).unwrap_or(u64::MAX));
    }
    for (port, value) in ports::kept() {
        values.push(Kind::Port, port.into(), value);
    }
}

fn debug_registers() -> [(u32, u64); 6] {
    let (zero, one, two, three, six, seven);
    // SAFETY: reads them.
    unsafe {
        asm!("mov {}, dr0", "mov {}, dr1", "mov {}, dr2", "mov {}, dr3", "mov {}, dr6", "mov {}, dr7",
            out(reg) zero, out(reg) one, out(reg) two, out(reg) three, out(reg) six, out(reg) seven,
            options(nostack, nomem));
    }
    [(0, zero), (1, one), (2, two), (3, three), (6, six), (7, seven)]
}

fn control_registers() -> [(u32, u64); 5] {
    let (zero, two, three, four, eight);
    // SAFETY: reads them.
    unsafe {
        asm!("mov {}, cr0", "mov {}, cr2", "mov {}, cr3", "mov {}, cr4", "mov {}, cr8",
            out(reg) zero, out(reg) two, out(reg) three, out(reg) four, out(reg) eight,
            options(nostack, nomem));
    }
    [(0, zero), (2, two), (3, three), (4, four), (8, eight)]
}
