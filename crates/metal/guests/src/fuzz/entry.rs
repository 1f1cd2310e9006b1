//! The first instructions of vCPUs, and the handlers of exceptions.
//!
//! The handlers use x16 to x18, which no made-up code writes on purpose. `TPIDR_EL1` is the number of exceptions that
//! an episode may still take.
//!
//! `entry.rs` and `episode.rs` import each other: the handlers continue with the next episode, and an episode enters
//! EL0 and made-up code by the instructions here.

use core::arch::global_asm;

unsafe extern "C" {
    /// Where vCPUs other than the first begin.
    pub(crate) fn secondary();
    /// Loads x0 to x15 from `registers`, and calls `code`. Returns what is in x0 then.
    pub(crate) fn execute(registers: *const u64, code: *const u32) -> u64;
    /// Goes to `code` at EL0, with x0 to x15 from `registers`, in the state of `spsr`.
    pub(crate) fn descend(registers: *const u64, code: *const u32, spsr: u64) -> !;
}

global_asm!(
    include_str!("../header.S"),
    r#"
first:
    mov x20, x0
    bl settle
    mov x0, x20
    bl {first}

    .global secondary
secondary:
    bl settle
    bl {begin}

again:
    bl settle
    bl {again}

    // A stack, the vectors, MMU and caches off, floating point on.
settle:
    msr daifset, #15
    msr spsel, #1
    ldr x1, =0x30d00800
    msr sctlr_el1, x1
    isb
    ldr x1, =stacks_end
    mrs x2, mpidr_el1
    and x2, x2, #7
    sub x1, x1, x2, lsl #14
    mov sp, x1
    adr x1, vectors
    msr vbar_el1, x1
    mov x1, #(3 << 20)
    msr cpacr_el1, x1
    tlbi vmalle1
    dsb sy
    isb
    ret

synchronous:
    mrs x16, esr_el1
    lsr x16, x16, #26
    // What cannot be fetched has nothing behind it.
    cmp x16, #0x21
    b.eq again
    cmp x16, #0x22
    b.eq again
    mrs x17, tpidr_el1
    subs x17, x17, #1
    b.le again
    msr tpidr_el1, x17
    mrs x16, elr_el1
    add x16, x16, #4
    msr elr_el1, x16
    eret

interrupt:
    mrs x16, icc_iar1_el1
    msr icc_eoir1_el1, x16
    lsr x17, x16, #13
    cbz x17, 1f
    adrp x17, {taken}
    ldr x18, [x17, :lo12:{taken}]
    add x18, x18, #1
    str x18, [x17, :lo12:{taken}]
1:
    // With EOImode 1 it needs this; with 0 it is one thing more that is not expected.
    msr icc_dir_el1, x16
    cmp x16, #27
    b.eq again
    mrs x17, tpidr_el1
    subs x17, x17, #1
    b.le again
    msr tpidr_el1, x17
    eret

    .balign 2048
vectors:
    b synchronous
    .balign 128
    b interrupt
    .balign 128
    b again
    .balign 128
    b again
    .balign 128
    b synchronous
    .balign 128
    b interrupt
    .balign 128
    b again
    .balign 128
    b again
    .balign 128
    b again
    .balign 128
    b again
    .balign 128
    b again
    .balign 128
    b again
    .balign 128
    b again
    .balign 128
    b again
    .balign 128
    b again
    .balign 128
    b again

    .global execute
execute:
    stp x29, x30, [sp, #-96]!
    stp x19, x20, [sp, #16]
    stp x21, x22, [sp, #32]
    stp x23, x24, [sp, #48]
    stp x25, x26, [sp, #64]
    stp x27, x28, [sp, #80]
    mov x17, x0
    mov x16, x1
    ldp x0, x1, [x17]
    ldp x2, x3, [x17, #16]
    ldp x4, x5, [x17, #32]
    ldp x6, x7, [x17, #48]
    ldp x8, x9, [x17, #64]
    ldp x10, x11, [x17, #80]
    ldp x12, x13, [x17, #96]
    ldp x14, x15, [x17, #112]
    blr x16
    ldp x19, x20, [sp, #16]
    ldp x21, x22, [sp, #32]
    ldp x23, x24, [sp, #48]
    ldp x25, x26, [sp, #64]
    ldp x27, x28, [sp, #80]
    ldp x29, x30, [sp], #96
    ret

    .global descend
descend:
    msr elr_el1, x1
    msr spsr_el1, x2
    mov x17, x0
    ldp x0, x1, [x17]
    ldp x2, x3, [x17, #16]
    ldp x4, x5, [x17, #32]
    ldp x6, x7, [x17, #48]
    ldp x8, x9, [x17, #64]
    ldp x10, x11, [x17, #80]
    ldp x12, x13, [x17, #96]
    ldp x14, x15, [x17, #112]
    eret
    .ltorg
    "#,
    first = sym super::episode::first,
    begin = sym super::episode::begin,
    again = sym super::episode::again,
    taken = sym super::its::TAKEN,
);

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}
