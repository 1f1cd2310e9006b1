//! The first instructions, the handlers of exceptions, and the instructions of a turn.
//!
//! Between the first and the second instruction of a turn nothing is loaded or stored, and no exception is taken at
//! EL1: the first may have written any register. x9 collects whether they were undefined; no flag is changed.

use core::arch::global_asm;

/// What a VM does in a slot: it executes the code at `first` with `before` in x0, waits until the virtual counter says
/// `until`, and executes the code at `second` with `after` in x0. Such code changes x0, x8, x15 and no other
/// general register, and ends in `br x30`.
#[repr(C)]
pub(crate) struct Turn {
    pub(crate) first: *const u32,
    pub(crate) before: u64,
    pub(crate) until: u64,
    pub(crate) second: *const u32,
    /// Then what is in x0 at the end.
    pub(crate) after: u64,
    /// Not 0: it waits in `WFI`, and the CPU is free. 0: it spins.
    pub(crate) sleeps: u64,
    /// 0 or 1.
    pub(crate) level: u64,
    /// A bit for `first`, a bit for `second`: it was undefined.
    pub(crate) undefined: u64,
    /// What the counter said at the end.
    pub(crate) ended: u64,
}

unsafe extern "C" {
    /// Does so.
    pub(crate) fn census_turn(turn: *mut Turn);
    /// Code of a turn that does nothing.
    pub(crate) static census_nothing: u32;
}

global_asm!(
    include_str!("../header.S"),
    r#"
first:
    mov x20, x0
    msr daifset, #15
    msr spsel, #1
    adrp x1, stacks_end
    mov sp, x1
    adr x1, vectors
    msr vbar_el1, x1
    // RES1, but not TSCXT; and EL0 is given all that there is to give: UMA, DZE, UCT, nTWI, nTWE, UCI, EnTP2.
    ldr x1, =(0x30c00800 | 1 << 9 | 1 << 14 | 1 << 15 | 1 << 16 | 1 << 18 | 1 << 26 | 1 << 60)
    msr sctlr_el1, x1
    // FPEN, ZEN, SMEN; the counters and timers.
    ldr x1, =(3 << 20 | 3 << 16 | 3 << 24)
    msr cpacr_el1, x1
    mov x1, #0x303
    msr cntkctl_el1, x1
    isb
    mov x0, x20
    bl {main}

    .global census_turn
census_turn:
    stp x29, x30, [sp, #-32]!
    str x0, [sp, #16]
    ldp x10, x11, [x0]
    ldp x2, x12, [x0, #16]
    ldp x13, x4, [x0, #32]
    ldr x3, [x0, #48]
    mov x9, #0
    cbnz x3, turn
    adr x5, turn
    msr elr_el1, x5
    mov x5, #0x3c0
    msr spsr_el1, x5
    eret
turn:
    msr nzcv, xzr
    mov x14, #1
    mov x0, x11
    adr x30, 1f
    br x10
1:  isb
    mrs x5, cntvct_el0
    sub x5, x5, x2
    tbz x5, #63, 2f
    cbz x4, 1b
    wfi
    b 1b
2:  mov x14, #2
    mov x0, x13
    adr x30, 3f
    br x12
3:  isb
    mrs x6, cntvct_el0
    cbnz x3, turned
    svc #0
turned:
    ldr x1, [sp, #16]
    str x0, [x1, #32]
    stp x9, x6, [x1, #56]
    ldp x29, x30, [sp], #32
    ret

    .global census_nothing
census_nothing:
    br x30

    // Behind the instruction, which was undefined.
undefined:
    orr x9, x9, x14
    mrs x15, elr_el1
    add x15, x15, #4
    msr elr_el1, x15
    eret
from_el0:
    mrs x15, esr_el1
    lsr x15, x15, #26
    sub x15, x15, #0x15
    cbz x15, turned
    b undefined
lost:
    mrs x0, esr_el1
    mrs x1, elr_el1
    bl {lost}

    .balign 2048
vectors:
    .rept 4
    b lost
    .balign 128
    .endr
    b undefined
    .balign 128
    .rept 3
    b lost
    .balign 128
    .endr
    b from_el0
    .balign 128
    .rept 7
    b lost
    .balign 128
    .endr
    .ltorg
    "#,
    main = sym super::course::main,
    lost = sym super::console::lost,
);
