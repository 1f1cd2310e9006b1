//! The first instructions of vCPUs, and the vectors: an interrupt calls [`interrupts::taken`](super::interrupts::taken),
//! an `SError` [`errors::taken`](super::errors::taken), and an exception of another kind ends the guest.

use core::arch::global_asm;

use crate::{errors, interrupts};

global_asm!(
    include_str!("../header.S"),
    r#"
first:
    bl settle
    bl {main}

    .global secondary
secondary:
    mov x20, x0
    bl settle
    blr x20

settle:
    msr daifset, #15
    msr spsel, #1
    ldr x1, =stacks_end
    mrs x2, mpidr_el1
    and x2, x2, #7
    sub x1, x1, x2, lsl #14
    mov sp, x1
    adr x1, vectors
    msr vbar_el1, x1
    isb
    ret
    .ltorg

    // A fast interrupt is of group 0.
interrupt:
    mov x0, #1
    b 1f
error:
    mov x0, #2
    b 1f
fast:
    mov x0, #0
1:  mrs x1, elr_el1
    mrs x2, spsr_el1
    stp x1, x2, [sp, #-16]!
    bl {taken}
    ldp x1, x2, [sp], #16
    msr elr_el1, x1
    msr spsr_el1, x2
    ldp x2, x3, [sp, #16]
    ldp x4, x5, [sp, #32]
    ldp x6, x7, [sp, #48]
    ldp x8, x9, [sp, #64]
    ldp x10, x11, [sp, #80]
    ldp x12, x13, [sp, #96]
    ldp x14, x15, [sp, #112]
    ldp x16, x17, [sp, #128]
    ldp x18, x29, [sp, #144]
    ldr x30, [sp, #160]
    ldp x0, x1, [sp], #176
    eret

    .macro save to
    .balign 128
    stp x0, x1, [sp, #-176]!
    stp x2, x3, [sp, #16]
    stp x4, x5, [sp, #32]
    stp x6, x7, [sp, #48]
    stp x8, x9, [sp, #64]
    stp x10, x11, [sp, #80]
    stp x12, x13, [sp, #96]
    stp x14, x15, [sp, #112]
    stp x16, x17, [sp, #128]
    stp x18, x29, [sp, #144]
    str x30, [sp, #160]
    b \to
    .endm
    .macro unexpected
    .balign 128
    b {unexpected}
    .endm

    .balign 2048
vectors:
    unexpected
    unexpected
    unexpected
    unexpected
    unexpected
    save interrupt
    save fast
    save error
    unexpected
    unexpected
    unexpected
    unexpected
    unexpected
    unexpected
    unexpected
    unexpected
    "#,
    main = sym super::main,
    taken = sym taken,
    unexpected = sym super::machine::unexpected,
);

/// An interrupt has come, of group 0 or 1, or an `SError`.
extern "C" fn taken(kind: u64) {
    match kind {
        2 => errors::taken(),
        group => interrupts::taken(group),
    }
}
