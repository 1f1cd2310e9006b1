//! From reset to Rust: a stack, memory that is cached, and exceptions.

use core::arch::global_asm;
use core::panic::PanicInfo;

use crate::{console, rows};

/// A table of the first level: 512 entries of 1 GiB.
#[repr(C, align(4096))]
struct Table([u64; 512]);

const GIB: u64 = 1 << 30;
/// Valid, a block, accessed, inner shareable.
const BLOCK: u64 = 1 | 1 << 10 | 3 << 8;
/// Index 1 of `MAIR_EL2`, and nothing to be fetched from.
const DEVICE: u64 = BLOCK | 1 << 2 | 1 << 54;

/// One to one: the first GiB are the machine's devices, the next two its memory.
static TABLE: Table = {
    let mut entries = [0; 512];
    entries[0] = DEVICE;
    let mut gib = 1;
    while gib < 3 {
        entries[gib] = (gib as u64 * GIB) | BLOCK;
        gib += 1;
    }
    Table(entries)
};

global_asm!(
    r#"
    .section .text.start, "ax"
    .global start
start:
    ldr x0, =stack_top
    mov sp, x0
    ldr x0, =bss_start
    ldr x1, =bss_end
1:  stp xzr, xzr, [x0], #16
    cmp x0, x1
    b.lo 1b
    adr x0, vectors
    msr vbar_el2, x0
    // Index 0 is memory that is written back, 1 is devices.
    ldr x0, =0x04ff
    msr mair_el2, x0
    // Addresses of 39 bits, pages of 4 KiB, walks cached and inner shareable, 40 bits of physical address.
    ldr x0, =(25 | 1 << 8 | 1 << 10 | 3 << 12 | 2 << 16 | 1 << 23 | 1 << 31)
    msr tcr_el2, x0
    adrp x0, {table}
    add x0, x0, :lo12:{table}
    msr ttbr0_el2, x0
    isb
    mrs x0, sctlr_el2
    mov x1, #(1 << 0 | 1 << 2 | 1 << 12)
    orr x0, x0, x1
    msr sctlr_el2, x0
    isb
    // Debug exceptions are EL2's (MDCR_EL2.TDE); EL2 may step itself (MDSCR_EL1.KDE); the OS lock is off.
    mov x0, #(1 << 8)
    msr mdcr_el2, x0
    mov x0, #(1 << 13)
    msr mdscr_el1, x0
    msr oslar_el1, xzr
    isb
    bl {main}

    .section .text.vectors, "ax"
    .balign 2048
vectors:
    .rept 4
    b lost
    .balign 128
    .endr
    // Synchronous, from EL2 with its own stack pointer.
    sub sp, sp, #272
    stp x0, x1, [sp, #0]
    stp x2, x3, [sp, #16]
    b taken
    .balign 128
    .rept 11
    b lost
    .balign 128
    .endr
lost:
    mov x0, sp
    b {lost}
taken:
    stp x4, x5, [sp, #32]
    stp x6, x7, [sp, #48]
    stp x8, x9, [sp, #64]
    stp x10, x11, [sp, #80]
    stp x12, x13, [sp, #96]
    stp x14, x15, [sp, #112]
    stp x16, x17, [sp, #128]
    stp x18, x19, [sp, #144]
    stp x20, x21, [sp, #160]
    stp x22, x23, [sp, #176]
    stp x24, x25, [sp, #192]
    stp x26, x27, [sp, #208]
    stp x28, x29, [sp, #224]
    mrs x0, elr_el2
    stp x30, x0, [sp, #240]
    mrs x0, spsr_el2
    str x0, [sp, #256]
    mov x0, sp
    bl {taken}
    ldr x0, [sp, #256]
    msr spsr_el2, x0
    ldp x30, x0, [sp, #240]
    msr elr_el2, x0
    ldp x28, x29, [sp, #224]
    ldp x26, x27, [sp, #208]
    ldp x24, x25, [sp, #192]
    ldp x22, x23, [sp, #176]
    ldp x20, x21, [sp, #160]
    ldp x18, x19, [sp, #144]
    ldp x16, x17, [sp, #128]
    ldp x14, x15, [sp, #112]
    ldp x12, x13, [sp, #96]
    ldp x10, x11, [sp, #80]
    ldp x8, x9, [sp, #64]
    ldp x6, x7, [sp, #48]
    ldp x4, x5, [sp, #32]
    ldp x2, x3, [sp, #16]
    ldp x0, x1, [sp], #16
    add sp, sp, #256
    eret
    "#,
    table = sym TABLE,
    main = sym main,
    lost = sym lost,
    taken = sym crate::step::taken,
);

extern "C" fn main() -> ! {
    let all_hold = rows::run();
    console::exit(u64::from(!all_hold))
}

/// An exception that nothing here takes: an interrupt, or one from elsewhere.
extern "C" fn lost() -> ! {
    panic!("an exception by an unexpected vector");
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    console::line(format_args!("{info}"));
    console::exit(2)
}
