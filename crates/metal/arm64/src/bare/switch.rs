//! The entry of a guest and its exit: the world switch, and the vectors of EL2.
//!
//! EL2 is built without floating point and touches no register of EL1. So between two entries of one vCPU, only the
//! general registers, the program counter and PSTATE are switched. The others are switched when another vCPU comes to
//! the processor ([`context`](super::context)).
//!
//! While a guest runs, the hypervisor's stack holds its own state. From `sp` up, these are the address for the guest's
//! registers, an unused word, and x19 to x30.

use core::arch::global_asm;
use core::mem::offset_of;

pub use crate::vcpu::Registers;

/// By which vector a guest came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// `ESR_EL2` says why.
    Synchronous,
    Interrupt,
    SystemError,
}

unsafe extern "C" {
    fn arm64_enter(registers: *mut Registers) -> u64;
    static arm64_vectors: u8;
}

/// Has the guest go on until it comes out.
///
/// # Safety
///
/// The EL2 registers that a guest is confined by are set, [`set_vectors`] was called, and interrupts are masked.
#[inline]
pub(super) unsafe fn enter(registers: &mut Registers) -> Way {
    // SAFETY: the caller's promise; the guest's registers are where the vectors put them, and the hypervisor's own are
    // as a call leaves them.
    match unsafe { arm64_enter(registers) } {
        0 => Way::Synchronous,
        1 => Way::Interrupt,
        _ => Way::SystemError,
    }
}

/// Sets this processor's vectors.
///
/// # Safety
///
/// The program defines `arm64_lost`: what it does with an exception of its own, which is a defect. The vectors jump
/// there with the number of the vector in x0, and the stack pointer as it was: it may be that of a stack that has
/// overflowed. It does not come back.
pub unsafe fn set_vectors() {
    let vectors = &raw const arm64_vectors as u64;
    // SAFETY: they are vectors, aligned as such.
    unsafe {
        crate::write_register!("vbar_el2", vectors);
        core::arch::asm!("isb", options(nostack));
    }
}

global_asm!(
    r#"
    .section .text.arm64_switch, "ax"
    .global arm64_enter
arm64_enter:
    sub sp, sp, #112
    str x0, [sp]
    stp x19, x20, [sp, #16]
    stp x21, x22, [sp, #32]
    stp x23, x24, [sp, #48]
    stp x25, x26, [sp, #64]
    stp x27, x28, [sp, #80]
    stp x29, x30, [sp, #96]
    ldp x1, x2, [x0, #{pc}]
    msr elr_el2, x1
    msr spsr_el2, x2
    ldp x2, x3, [x0, #16]
    ldp x4, x5, [x0, #32]
    ldp x6, x7, [x0, #48]
    ldp x8, x9, [x0, #64]
    ldp x10, x11, [x0, #80]
    ldp x12, x13, [x0, #96]
    ldp x14, x15, [x0, #112]
    ldp x16, x17, [x0, #128]
    ldp x18, x19, [x0, #144]
    ldp x20, x21, [x0, #160]
    ldp x22, x23, [x0, #176]
    ldp x24, x25, [x0, #192]
    ldp x26, x27, [x0, #208]
    ldp x28, x29, [x0, #224]
    ldr x30, [x0, #240]
    ldp x0, x1, [x0]
    eret
    // Nothing behind an ERET is executed, nor speculated into.
    dsb nsh
    isb

    // x0 and x1 of the guest are on the stack, x1 is the way. Above them is what `arm64_enter` put there.
arm64_leave:
    ldr x0, [sp, #16]
    stp x2, x3, [x0, #16]
    stp x4, x5, [x0, #32]
    stp x6, x7, [x0, #48]
    stp x8, x9, [x0, #64]
    stp x10, x11, [x0, #80]
    stp x12, x13, [x0, #96]
    stp x14, x15, [x0, #112]
    stp x16, x17, [x0, #128]
    stp x18, x19, [x0, #144]
    stp x20, x21, [x0, #160]
    stp x22, x23, [x0, #176]
    stp x24, x25, [x0, #192]
    stp x26, x27, [x0, #208]
    stp x28, x29, [x0, #224]
    str x30, [x0, #240]
    ldp x2, x3, [sp], #16
    stp x2, x3, [x0]
    mrs x2, elr_el2
    mrs x3, spsr_el2
    stp x2, x3, [x0, #{pc}]
    mov x0, x1
    ldp x19, x20, [sp, #16]
    ldp x21, x22, [sp, #32]
    ldp x23, x24, [sp, #48]
    ldp x25, x26, [sp, #64]
    ldp x27, x28, [sp, #80]
    ldp x29, x30, [sp, #96]
    add sp, sp, #112
    ret

    .macro lost number
    .balign 128
    mov x0, #\number
    b arm64_lost
    .endm
    .macro leave way
    .balign 128
    stp x0, x1, [sp, #-16]!
    mov x1, #\way
    b arm64_leave
    .endm

    .section .text.arm64_vectors, "ax"
    .balign 2048
    .global arm64_vectors
arm64_vectors:
    // From EL2 itself, by either stack pointer.
    lost 0
    lost 1
    lost 2
    lost 3
    // A synchronous exception of EL2's own: expected of one instruction (`lookup`), which has failed then, and PAR_EL1 says
    // so. Only registers are used that a call may change, and no stack: that may have overflown.
    .balign 128
    mrs x16, elr_el2
    adr x17, arm64_lookup
    cmp x16, x17
    b.ne 1f
    add x16, x16, #4
    msr elr_el2, x16
    mov x16, #1
    msr par_el1, x16
    eret
1:  mov x0, #4
    b arm64_lost
    lost 5
    lost 6
    // An SError of EL2's own: expected in one place, where x0 says that it has come.
    .balign 128
    stp x1, x2, [sp, #-16]!
    mrs x1, elr_el2
    adr x2, arm64_error_begin
    cmp x1, x2
    b.lo 1f
    adr x2, arm64_error_end
    cmp x1, x2
    b.hi 1f
    mov x0, #1
    ldp x1, x2, [sp], #16
    eret
1:  mov x0, #7
    b arm64_lost
    // From a guest, in AArch64 and in AArch32.
    leave 0
    leave 1
    leave 1
    leave 2
    leave 0
    leave 1
    leave 1
    leave 2
    "#,
    pc = const offset_of!(Registers, pc),
);
