//! What two VMs could share beside what `MRS` and `MSR` show: vector registers, the exclusive monitor, the result of an
//! address translation, breakpoints and watchpoints that hit, and what an instruction makes by a key. And instructions of features that are hidden, which must
//! be undefined.

use core::arch::global_asm;
use core::ptr::with_exposed_provenance_mut;

use mayfly_arm64_registers::sysreg::SysReg;

use crate::steps::{self, REGISTERS};

/// A case: what the first VM executes with a pattern in x0, and what the second one executes before and after.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) writes: *const u32,
    pub(crate) prepares: *const u32,
    pub(crate) reads: *const u32,
    /// What the second VM has in x0, before and after.
    pub(crate) own: u64,
    /// What the second VM has in x0 at the end; `None` where it is what it was before the first slot.
    pub(crate) expected: Option<u64>,
}

unsafe extern "C" {
    static census_fill: u32;
    static census_differ: u32;
    static census_load: u32;
    static census_store: u32;
    static census_translate: u32;
    static census_vector_length: u32;
    static census_streaming_length: u32;
    static census_streams: u32;
    static census_watches: u32;
    static census_watches_nothing: u32;
    static census_debugs: u32;
    static census_watched: u32;
    static census_breaks: u32;
    static census_uses_key: u32;
}

const PAR_EL1: SysReg = SysReg::new(3, 0, 7, 4, 0);
const APGAKEYLO_EL1: SysReg = SysReg::new(3, 0, 2, 3, 0);
/// A word of memory that is the guest's to use, far behind its image.
const WORD: u64 = 0x40e0_0000;

/// Touches the word, so that no slot has to wait for memory.
pub(crate) fn prepare() {
    // SAFETY: the guest's memory, and nothing else is there.
    unsafe { with_exposed_provenance_mut::<u64>(WORD as usize).write_volatile(0) };
}

/// The cases.
pub(crate) fn all() -> [Case; 6] {
    // The case of the exclusive monitor cannot fail on hardware that follows the architecture: an ERET clears the monitor,
    // so each entry of a guest does, too. It is here for processors, and emulators, that do not follow it.
    [
        Case {
            name: "a vector register",
            writes: &raw const census_fill,
            prepares: &raw const census_fill,
            reads: &raw const census_differ,
            own: 0x0123_4567_89ab_cdef,
            expected: Some(0),
        },
        Case {
            name: "the exclusive monitor",
            writes: &raw const census_translate,
            prepares: &raw const census_load,
            reads: &raw const census_store,
            own: WORD,
            expected: Some(1),
        },
        Case {
            name: "PAR_EL1 after AT",
            writes: &raw const census_translate,
            prepares: steps::nothing(),
            reads: read(PAR_EL1),
            own: 0,
            expected: None,
        },
        Case {
            name: "a watchpoint",
            writes: watches(),
            prepares: &raw const census_debugs,
            reads: &raw const census_watched,
            own: 0,
            expected: Some(0),
        },
        Case {
            name: "a breakpoint",
            writes: watches(),
            prepares: &raw const census_debugs,
            reads: &raw const census_breaks,
            own: 0,
            expected: Some(0),
        },
        Case {
            name: "PACGA",
            writes: write(APGAKEYLO_EL1),
            prepares: steps::nothing(),
            reads: uses_key(),
            own: 0x0123_4567_89ab_cdef,
            expected: None,
        },
    ]
}

fn number(register: SysReg) -> usize {
    SysReg::all().position(|listed| listed == register).unwrap_or(REGISTERS - 1)
}

fn read(register: SysReg) -> *const u32 {
    steps::read(number(register))
}

fn write(register: SysReg) -> *const u32 {
    steps::write(number(register))
}

/// Code that uses a key of pointer authentication: what it makes of x0.
pub(crate) fn uses_key() -> *const u32 {
    &raw const census_uses_key
}

/// Code that reads a half of that key.
pub(crate) fn reads_key() -> *const u32 {
    read(APGAKEYLO_EL1)
}

/// Code that sets a watchpoint and a breakpoint, and enables debug exceptions.
pub(crate) fn watches() -> *const u32 {
    &raw const census_watches
}

/// Code that turns them off again. Debug exceptions stay enabled.
pub(crate) fn watches_nothing() -> *const u32 {
    &raw const census_watches_nothing
}

/// Code that reads `ESR_EL1`.
pub(crate) fn syndrome() -> *const u32 {
    read(SysReg::new(3, 0, 5, 2, 0))
}

/// Code that hits what [`watches`] has set, by name, and the class of the exception.
pub(crate) fn watched() -> [(&'static str, *const u32, u64); 2] {
    [
        ("a watchpoint", &raw const census_watched, 0x35),
        ("a breakpoint", &raw const census_breaks, 0x31),
    ]
}

/// Instructions of SVE and SME, by name.
pub(crate) fn hidden() -> [(&'static str, *const u32); 3] {
    [
        ("RDVL", &raw const census_vector_length),
        ("RDSVL", &raw const census_streaming_length),
        ("SMSTART", &raw const census_streams),
    ]
}

global_asm!(
    r#"
    .section .text.census_cases, "ax"
    .arch_extension fp
    .arch_extension simd
    .macro each_vector instruction
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    \instruction \n
    .endr
    .endm
    .macro fill n
    dup v\n\().2d, x0
    .endm
    // Adds to x15 where either half of the register is not x0.
    .macro differ n
    fmov x8, d\n
    eor x8, x8, x0
    orr x15, x15, x8
    mov x8, v\n\().d[1]
    eor x8, x8, x0
    orr x15, x15, x8
    .endm

    .global census_fill
census_fill:
    each_vector fill
    br x30
    // x0 is 0 where all of them are what x0 says.
    .global census_differ
census_differ:
    mov x15, #0
    each_vector differ
    mov x0, x15
    br x30
    .arch_extension nosimd
    .arch_extension nofp

    .global census_load
census_load:
    ldxr x15, [x0]
    br x30
    .global census_store
census_store:
    stxr w8, x15, [x0]
    mov w0, w8
    br x30
    .global census_translate
census_translate:
    at s1e1r, x0
    mov x15, #0x40e00000
    ldxr x0, [x15]
    br x30

    .global census_vector_length
census_vector_length:
    .inst 0x04bf5020
    br x30
    .global census_streaming_length
census_streaming_length:
    .inst 0x04bf5820
    br x30
    .global census_streams
census_streams:
    .inst 0xd503477f
    br x30

    // Of stores to the word, from EL1; and of one instruction, at EL1.
    .global census_watches
census_watches:
    mov x15, #0x40e00000
    msr dbgwvr0_el1, x15
    mov x15, #(0xff << 5 | 2 << 3 | 1 << 1 | 1)
    msr dbgwcr0_el1, x15
    adr x15, 1f
    msr dbgbvr0_el1, x15
    mov x15, #(0xf << 5 | 1 << 1 | 1)
    msr dbgbcr0_el1, x15
    // KDE and MDE; debug exceptions stay masked by PSTATE.D.
    .global census_debugs
census_debugs:
    mov x15, #(1 << 13 | 1 << 15)
    msr mdscr_el1, x15
    isb
    br x30
    .global census_watches_nothing
census_watches_nothing:
    msr dbgwcr0_el1, xzr
    msr dbgbcr0_el1, xzr
    isb
    br x30
    .global census_watched
census_watched:
    mov x15, #0x40e00000
    msr daifclr, #8
    isb
    str x15, [x15]
    msr daifset, #8
    isb
    mov x0, #0
    br x30
    // PACGA x0, x0, x15
    .global census_uses_key
census_uses_key:
    mov x15, #1
    .inst 0x9acf3000
    br x30
    .global census_breaks
census_breaks:
    msr daifclr, #8
    isb
1:  nop
    msr daifset, #8
    isb
    mov x0, #0
    br x30
    "#
);
