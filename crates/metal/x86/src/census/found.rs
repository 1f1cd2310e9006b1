//! What a VM finds of leaves of CPUID, control registers, debug registers and XCR0.

use core::arch::x86_64::__cpuid_count;

use super::values::{say_ranges, shows};
use crate::kernel::console::say;
use crate::kernel::tried::{Outcome, bare, with};

/// Bits of CR0 that have a meaning, and that it goes on with and without: MP, EM, TS, NE, WP, AM, CD.
const CR0: [u32; 7] = [1, 2, 3, 5, 16, 18, 30];

/// Leaves that are looked at, and how many parts of each.
fn leaves() -> impl Iterator<Item = u32> {
    const SOME: u32 = 0x100;
    (0..SOME)
        .chain(0x4000_0000..0x4000_0000 + SOME)
        .chain(0x8000_0000..0x8000_0000 + SOME)
        .chain(0xc000_0000..0xc000_0000 + SOME)
}
const PARTS: u32 = 64;

/// What it reads there.
pub(super) fn leaf(leaf: u32, part: u32) -> [u32; 4] {
    let said = __cpuid_count(leaf, part);
    [said.eax, said.ebx, said.ecx, said.edx]
}

/// Whether there is something at a leaf, or at a part of it. Says so if it shows the pattern.
fn has(number: u32) -> bool {
    let mut has = false;
    let parts = if matches!(number, 4 | 7 | 0xb | 0xd) { PARTS } else { 2 };
    for part in 0..parts {
        let words = leaf(number, part);
        // A part of the topology that there is not has its own number, and that of the processor.
        has |= words != [0; 4] && (number != 0xb || part < 2);
        for word in words.into_iter().filter(|word| shows((*word).into())) {
            say!("FAILED: CPUID {number:#x} shows the pattern: {word:#x}");
        }
    }
    has
}

/// The bits among `bits` that change when they are written; `read` and `flip` are code, of which the second changes the bits that
/// are in RCX.
fn bits(read: &[u8], flip: &[u8], bits: impl Iterator<Item = u32>) -> u64 {
    let value = || match bare(read) {
        Outcome::Done(value, _) => value,
        Outcome::Raised(_) => 0,
    };
    let before = value();
    let mut taken = 0;
    for bit in bits {
        let is_taken =
            matches!(with(flip, 0, 1 << bit, 0), Outcome::Done(..)) && value() == before ^ 1 << bit;
        if is_taken {
            taken |= 1 << bit;
            let _ = with(flip, 0, 1 << bit, 0);
        }
    }
    taken
}

/// MOV from a register of the kind that `opcode` names.
fn is_read(opcode: u8, number: u32) -> bool {
    let prefix = if number < 8 { 0x40 } else { 0x44 };
    let code = [prefix, 0x0f, opcode, 0xc0 | (number as u8 & 7) << 3];
    matches!(bare(&code), Outcome::Done(..))
}

/// Says all of it.
pub(super) fn tell() {
    say_ranges("leaves of CPUID that have something", leaves().filter(|leaf| has(*leaf)));
    say_ranges("control registers that are read", (0..16).filter(|number| is_read(0x20, *number)));
    say_ranges("debug registers that are read", (0..16).filter(|number| is_read(0x21, *number)));
    // mov rax, cr0; and: xor rax, rcx; mov cr0, rax
    let cr0 = bits(
        &[0x0f, 0x20, 0xc0],
        &[0x0f, 0x20, 0xc0, 0x48, 0x31, 0xc8, 0x0f, 0x22, 0xc0],
        CR0.into_iter(),
    );
    let cr4 = bits(
        &[0x0f, 0x20, 0xe0],
        &[0x0f, 0x20, 0xe0, 0x48, 0x31, 0xc8, 0x0f, 0x22, 0xe0],
        // OSXSAVE is on, and what follows needs it.
        (0..64).filter(|bit| *bit != 18),
    );
    let cr8 = bits(
        &[0x44, 0x0f, 0x20, 0xc0],
        &[0x44, 0x0f, 0x20, 0xc0, 0x48, 0x31, 0xc8, 0x44, 0x0f, 0x22, 0xc0],
        0..4,
    );
    say!("bits that are written: CR0 {cr0:#x}, CR4 {cr4:#x}, CR8 {cr8:#x}, XCR0 {:#x}", xcr0());
}

/// The bits of XCR0 that can be set, AVX with SSE, and all with x87.
fn xcr0() -> u64 {
    const XSETBV: &[u8] = &[0x0f, 0x01, 0xd1];
    let mut taken = 0;
    for bit in 0..64 {
        let value = 1 << bit | if bit == 2 { 3 } else { 1 };
        if matches!(with(XSETBV, value & 0xffff_ffff, 0, value >> 32), Outcome::Done(..)) {
            taken |= value;
        }
    }
    let _ = with(XSETBV, 1, 0, 0);
    taken
}
