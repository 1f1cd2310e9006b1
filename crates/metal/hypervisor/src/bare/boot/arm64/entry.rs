//! The way from the boot loader to Rust, by the boot protocol of arm64 Linux (`Documentation/arch/arm64/booting.rst`):
//! MMU and data cache are off, the image is clean to the point of coherency, and x0 has the address of the device tree.
//!
//! The first processor makes tables that map one to one. They map the GiB of the image and the GiB of the device tree
//! as memory, and the rest of the first 4 GiB as devices. The processor turns the MMU on, relocates the image, and
//! clears what is to be zero. It clears through the caches, so that no older line is in the way. Later the program
//! makes tables of its own ([`map`](super::map)). They replace the first ones, and the other processors begin with
//! them.

use core::arch::global_asm;

/// A table of 512 GiB, an entry a GiB.
#[repr(C, align(4096))]
struct Table([u64; 512]);

/// What the first processor's MMU is turned on by. In data, so that it is not cleared when it is in use.
#[unsafe(link_section = ".data.first_table")]
static FIRST_TABLE: Table = Table([0; 512]);

/// `TCR_EL2`: addresses of 39 bits, pages of 4 KiB, walks cached and inner shareable, 40 bits of physical address,
/// RES1.
const TCR: u64 = 0x19 | 1 << 8 | 1 << 10 | 3 << 12 | 2 << 16 | 1 << 23 | 1 << 31;
/// `MAIR_EL2`: 0 is memory that is written back, 1 is devices (nGnRE).
const MAIR: u64 = 0x04ff;
/// `SCTLR_EL2`: RES1, and M, C, I; SA.
const SCTLR: u64 = 0x30c5_0830 | 1 | 1 << 2 | 1 << 3 | 1 << 12;

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
    adrp x21, {table}
    add x21, x21, :lo12:{table}
    // Device, accessed, not executable; then memory, inner shareable.
    ldr x1, =(1 | 1 << 10 | 1 << 2 | 1 << 54)
    ldr x2, =(1 | 1 << 10 | 3 << 8)
    mov x3, #0
1:  add x4, x1, x3, lsl #30
    str x4, [x21, x3, lsl #3]
    add x3, x3, #1
    cmp x3, #4
    b.lo 1b
    adr x3, start
    lsr x3, x3, #30
    add x4, x2, x3, lsl #30
    str x4, [x21, x3, lsl #3]
    lsr x3, x20, #30
    add x4, x2, x3, lsl #30
    str x4, [x21, x3, lsl #3]
    // What the caches may have of the table from before is not to be found by walks.
    mov x3, #0
2:  add x4, x21, x3
    dc ivac, x4
    add x3, x3, #16
    cmp x3, #4096
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
    ldr x0, [x20, #16]
    bl {secondary}

    // By the tables in x0.
turn_on:
    msr ttbr0_el2, x0
    ldr x1, ={mair}
    msr mair_el2, x1
    ldr x1, ={tcr}
    msr tcr_el2, x1
    // E2H clear, and nothing that a guest needs yet but RW.
    mov x1, #(1 << 31)
    msr hcr_el2, x1
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
    .ltorg
    "#,
    table = sym FIRST_TABLE,
    main = sym super::start::main,
    secondary = sym super::cpus::secondary,
    mair = const MAIR,
    tcr = const TCR,
    sctlr = const SCTLR,
);
