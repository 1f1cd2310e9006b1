//! The way from the boot loader to Rust, by the boot protocol of arm64 Linux (`Documentation/arch/arm64/booting.rst`):
//! MMU and data cache are off, the image is clean to the point of coherency, and x0 has the address of the device tree.
//!
//! The first processor makes tables that map one to one. They map the GiB of the image and the GiB of the device tree
//! as memory, and the rest of the first 4 GiB as devices. A console elsewhere is added by the program
//! ([`map::reach`](super::map::reach)). The processor turns the MMU on, relocates the image, and
//! clears what is to be zero. It clears through the caches, so that no older line is in the way. Later the program
//! makes tables of its own ([`map`](super::map)). They replace the first ones, and the other processors begin with
//! them.
//!
//! A boot loader that starts the image at EL1 is told so, which takes as much: the MMU is turned on for EL1 then, by the
//! same tables, and no register of EL2 is touched. A processor on which `HCR_EL2.E2H` stays set is told so in the same
//! way: there, the names of EL1's registers are of EL2's, which have the layout of EL1's then.

use core::arch::global_asm;

use super::first_tables::FIRST_TABLES;

/// `TCR_EL2` but for the bits of physical addresses: addresses of 48 bits, pages of 4 KiB, walks cached and inner
/// shareable, RES1. In `TCR_EL1` the RES1 bits are the granule of the upper addresses, and that these are not walked.
const TCR: u64 = 0x10 | 1 << 8 | 1 << 10 | 3 << 12 | 1 << 23 | 1 << 31;
/// `ID_AA64MMFR0_EL1.PARange` of 48 bits: the tables have no more.
const PA_RANGE: u64 = 5;
/// `MAIR_EL2`: 0 is memory that is written back, 1 is devices (nGnRE).
const MAIR: u64 = 0x04ff;
/// `SCTLR_EL2`: RES1, and M, C, I; SA.
const SCTLR: u64 = 0x30c5_0830 | 1 | 1 << 2 | 1 << 3 | 1 << 12;
/// The same for EL1.
const SCTLR_EL1: u64 = 0x30d0_0800 | 1 | 1 << 2 | 1 << 3 | 1 << 12;

global_asm!(
    r#"
    .section .text.start, "ax"
    .global start
start:
    // The header of a Linux Image: its flags are little endian, 4 KiB pages, anywhere in memory.
    b first
    .long 0
    .quad 0
    .quad image_end - . + 16
    .quad 0b1010
    .quad 0
    .quad 0
    .quad 0
    .ascii "ARM\x64"
    .long 0

first:
    mov x20, x0
    adrp x21, {tables}
    add x21, x21, :lo12:{tables}
    // Of the lowest addresses, x22; of the image, x6; of the device tree, x8: they may be the same.
    add x22, x21, #0x1000
    orr x1, x22, #3
    str x1, [x21]
    adr x3, start
    mov x6, x22
    lsr x5, x3, #39
    cbz x5, 1f
    add x6, x21, #0x2000
    orr x1, x6, #3
    str x1, [x21, x5, lsl #3]
1:  mov x8, x22
    lsr x7, x20, #39
    cbz x7, 2f
    mov x8, x6
    cmp x7, x5
    b.eq 2f
    add x8, x21, #0x3000
    orr x1, x8, #3
    str x1, [x21, x7, lsl #3]
    // Device, accessed, not executable; then memory, inner shareable.
2:  ldr x1, =(1 | 1 << 10 | 1 << 2 | 1 << 54)
    ldr x2, =(1 | 1 << 10 | 3 << 8)
    mov x4, #0
1:  add x5, x1, x4, lsl #30
    str x5, [x22, x4, lsl #3]
    add x4, x4, #1
    cmp x4, #4
    b.lo 1b
    lsr x4, x3, #30
    add x5, x2, x4, lsl #30
    and x4, x4, #511
    str x5, [x6, x4, lsl #3]
    lsr x4, x20, #30
    add x5, x2, x4, lsl #30
    and x4, x4, #511
    str x5, [x8, x4, lsl #3]
    // What the caches may have of the tables from before is not to be found by walks.
    mov x3, #0
2:  add x4, x21, x3
    dc ivac, x4
    add x3, x3, #16
    cmp x3, #0x5000
    b.lo 2b
    dsb sy
    mov x0, x21
    bl turn_on

    // Relocations: R_AARCH64_RELATIVE, 0x403, and no other.
    adr x0, start
    adrp x1, rela_start
    add x1, x1, :lo12:rela_start
    adrp x2, rela_end
    add x2, x2, :lo12:rela_end
3:  cmp x1, x2
    b.hs 5f
    ldp x3, x4, [x1], #16
    ldr x5, [x1], #8
    cmp w4, #0x403
    b.ne 4f
    add x5, x5, x0
    str x5, [x0, x3]
    b 3b
4:  wfe
    b 4b
5:  adrp x0, bss_start
    adrp x1, bss_end
    add x1, x1, :lo12:bss_end
6:  cmp x0, x1
    b.hs 7f
    stp xzr, xzr, [x0], #16
    b 6b
7:  dsb sy
    ic iallu
    dsb nsh
    isb
    adrp x0, stack_top
    mov sp, x0
    mov x0, x20
    bl {main}

    .global secondary_start
secondary_start:
    mov x20, x0
    ldp x1, x0, [x20]
    mov sp, x1
    bl turn_on
    mov x0, x20
    bl {secondary}

    // By the tables in x0.
turn_on:
    mrs x1, id_aa64mmfr0_el1
    and x1, x1, #15
    mov x2, #{pa_range}
    cmp x1, x2
    csel x1, x1, x2, lo
    ldr x2, ={tcr}
    ldr x3, ={mair}
    mrs x4, CurrentEL
    cmp x4, #8
    b.ne 2f
    // E2H clear, and nothing that a guest needs yet but RW.
    mov x4, #(1 << 31)
    msr hcr_el2, x4
    isb
    mrs x4, hcr_el2
    tbnz x4, #34, 1f
    orr x2, x2, x1, lsl #16
    msr ttbr0_el2, x0
    msr mair_el2, x3
    msr tcr_el2, x2
    isb
    tlbi alle2
    dsb nsh
    ic iallu
    dsb nsh
    isb
    ldr x1, ={sctlr}
    msr sctlr_el2, x1
    isb
    ret
    // E2H stays set. MSR PAN, #0: pages that EL0 would reach, too, are not out of reach.
1:  tlbi alle2
    .inst 0xd500409f
2:  orr x2, x2, x1, lsl #32
    msr ttbr0_el1, x0
    msr mair_el1, x3
    msr tcr_el1, x2
    isb
    tlbi vmalle1
    dsb nsh
    ic iallu
    dsb nsh
    isb
    ldr x1, ={sctlr_el1}
    msr sctlr_el1, x1
    isb
    ret
    .ltorg
    "#,
    tables = sym FIRST_TABLES,
    main = sym super::start::main,
    secondary = sym super::cpus::secondary,
    mair = const MAIR,
    tcr = const TCR,
    sctlr = const SCTLR,
    sctlr_el1 = const SCTLR_EL1,
    pa_range = const PA_RANGE,
);
