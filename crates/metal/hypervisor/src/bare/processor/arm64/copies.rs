//! `memcpy`, `memmove` and `memset`, which the compiler calls: 64 bytes between two branches, by general registers.
//! Those of the compiler's own library take a word at a time.
//!
//! Memory is mapped as such, and `SCTLR_EL2.A` is clear, so an access need not be aligned.

use core::arch::global_asm;

// The bits of a length below 64 are those of the length less 64, too: each says whether a piece of its size is left. All
// of a piece is loaded before any of it is stored, so memory may overlap.
global_asm!(
    r#"
    .section .text.memcpy, "ax"
    .global memcpy
    .global memmove
    .balign 16
memmove:
    // Upwards, unless the destination begins within the source.
    sub x3, x0, x1
    cmp x3, x2
    b.lo 8f
memcpy:
    mov x3, x0
    subs x2, x2, #64
    b.lo 2f
1:  ldp x4, x5, [x1]
    ldp x6, x7, [x1, #16]
    ldp x8, x9, [x1, #32]
    ldp x10, x11, [x1, #48]
    add x1, x1, #64
    stp x4, x5, [x3]
    stp x6, x7, [x3, #16]
    stp x8, x9, [x3, #32]
    stp x10, x11, [x3, #48]
    add x3, x3, #64
    subs x2, x2, #64
    b.hs 1b
2:  tbz x2, #5, 3f
    ldp x4, x5, [x1]
    ldp x6, x7, [x1, #16]
    add x1, x1, #32
    stp x4, x5, [x3]
    stp x6, x7, [x3, #16]
    add x3, x3, #32
3:  tbz x2, #4, 4f
    ldp x4, x5, [x1], #16
    stp x4, x5, [x3], #16
4:  tbz x2, #3, 5f
    ldr x4, [x1], #8
    str x4, [x3], #8
5:  tbz x2, #2, 6f
    ldr w4, [x1], #4
    str w4, [x3], #4
6:  tbz x2, #1, 7f
    ldrh w4, [x1], #2
    strh w4, [x3], #2
7:  tbz x2, #0, 9f
    ldrb w4, [x1]
    strb w4, [x3]
    ret
    // Downwards.
8:  add x1, x1, x2
    add x3, x0, x2
    subs x2, x2, #64
    b.lo 2f
1:  ldp x4, x5, [x1, #-16]
    ldp x6, x7, [x1, #-32]
    ldp x8, x9, [x1, #-48]
    ldp x10, x11, [x1, #-64]!
    stp x4, x5, [x3, #-16]
    stp x6, x7, [x3, #-32]
    stp x8, x9, [x3, #-48]
    stp x10, x11, [x3, #-64]!
    subs x2, x2, #64
    b.hs 1b
2:  tbz x2, #5, 3f
    ldp x4, x5, [x1, #-16]
    ldp x6, x7, [x1, #-32]!
    stp x4, x5, [x3, #-16]
    stp x6, x7, [x3, #-32]!
3:  tbz x2, #4, 4f
    ldp x4, x5, [x1, #-16]!
    stp x4, x5, [x3, #-16]!
4:  tbz x2, #3, 5f
    ldr x4, [x1, #-8]!
    str x4, [x3, #-8]!
5:  tbz x2, #2, 6f
    ldr w4, [x1, #-4]!
    str w4, [x3, #-4]!
6:  tbz x2, #1, 7f
    ldrh w4, [x1, #-2]!
    strh w4, [x3, #-2]!
7:  tbz x2, #0, 9f
    ldrb w4, [x1, #-1]
    strb w4, [x3, #-1]
9:  ret

    .section .text.memset, "ax"
    .global memset
    .balign 16
memset:
    and x1, x1, #0xff
    mov x4, #0x0101010101010101
    mul x1, x1, x4
    mov x3, x0
    subs x2, x2, #64
    b.lo 2f
1:  stp x1, x1, [x3]
    stp x1, x1, [x3, #16]
    stp x1, x1, [x3, #32]
    stp x1, x1, [x3, #48]
    add x3, x3, #64
    subs x2, x2, #64
    b.hs 1b
2:  tbz x2, #5, 3f
    stp x1, x1, [x3]
    stp x1, x1, [x3, #16]
    add x3, x3, #32
3:  tbz x2, #4, 4f
    stp x1, x1, [x3], #16
4:  tbz x2, #3, 5f
    str x1, [x3], #8
5:  tbz x2, #2, 6f
    str w1, [x3], #4
6:  tbz x2, #1, 7f
    strh w1, [x3], #2
7:  tbz x2, #0, 9f
    strb w1, [x3]
9:  ret
    "#
);
