//! Where the guest begins, and what its CPUs do: without a stack, but for the first of them.

unsafe extern "C" {
    pub(super) fn spins();
    pub(super) fn counts(word: *mut u64);
    pub(super) fn counts_and_spins();
    pub(super) fn gaps(word: *mut u64);
    pub(super) fn gaps_and_spins();
    pub(super) fn measures();
    pub(super) fn disturbs();
    pub(super) fn wakes();
    pub(super) fn overfills() -> u64;
}

core::arch::global_asm!(
    include_str!("../header.S"),
    r#"
first:
    adrp x1, stacks_end
    mov sp, x1
    bl {main}

    // Another CPU that has a stack, with a number in x0.
    .global measures
measures:
    adrp x1, stacks_end
    sub sp, x1, #0x4000
    b {measure}

    .global spins
spins:
    b spins

    // Counts loops in the word at x0, from one moment to another.
    .global counts
counts:
    adrp x1, {window}
    add x1, x1, :lo12:{window}
    ldp x2, x3, [x1]
    mov x4, #0
1:  mrs x5, cntpct_el0
    cmp x5, x2
    b.lo 1b
    cmp x5, x3
    b.hs 2f
    add x4, x4, #1
    str x4, [x0]
    b 1b
2:  ret
    .global counts_and_spins
counts_and_spins:
    bl counts
    b spins

    // Keeps the longest time between two reads of the counter in the word at x0. Its timer is due every 5 ms, as that of
    // a CPU of Mayfly's is: it ends QEMU's turn.
    .global gaps
gaps:
    adrp x1, {window}
    add x1, x1, :lo12:{window}
    ldp x2, x3, [x1]
    mrs x8, cntfrq_el0
    mov x4, #200
    udiv x8, x8, x4
    mov x4, #0
    mrs x5, cntvct_el0
    mov x9, x5
1:  isb
    mrs x6, cntvct_el0
    cmp x6, x9
    b.lo 3f
    add x9, x6, x8
    msr cntv_cval_el0, x9
    mov x7, #1
    msr cntv_ctl_el0, x7
3:  sub x7, x6, x5
    mov x5, x6
    cmp x7, x4
    b.ls 2f
    mov x4, x7
    str x4, [x0]
2:  cmp x6, x3
    b.lo 1b
    ret
    .global gaps_and_spins
gaps_and_spins:
    bl gaps
    b spins

    // Has the timer's interrupt, and software interrupt 5, come to vCPU x0, which masks them.
takes:
    msr daifset, #15
    adr x1, skips
    msr vbar_el1, x1
    ldr x10, =0x080a0000
    add x10, x10, x0, lsl #17
    str wzr, [x10, #0x14]
    add x10, x10, #0x10000
    mov w1, #-1
    str w1, [x10, #0x80]
    ldr w1, =(1 << 27 | 1 << 5)
    str w1, [x10, #0x100]
    ldr x10, =0x08000000
    mov w1, #0x12
    str w1, [x10]
    mov x1, #7
    msr icc_sre_el1, x1
    mov x1, #0xf0
    msr icc_pmr_el1, x1
    mov x1, #1
    msr icc_igrpen1_el1, x1
    isb
    ret

    // Makes exits and faults, and sleeps: vCPU x0.
    .global disturbs
disturbs:
    bl takes
    mrs x11, cntfrq_el0
    lsr x11, x11, #12
    // Nothing is there.
    mov x12, #0x1000
1:  ldr w0, =0x84000000
    hvc #0
    ldr w1, [x10]
    ldr w1, [x12]
    mrs x1, mdscr_el1
    msr cntv_tval_el0, x11
    mov x1, #1
    msr cntv_ctl_el0, x1
    isb
    wfi
    mrs x1, icc_iar1_el1
    msr cntv_ctl_el0, xzr
    isb
    msr icc_eoir1_el1, x1
    b 1b

    // Has more interrupts pending than list registers, takes all of those, and touches a page at once, before the hardware
    // has said that there are no more. Returns how many pages it has touched.
    .global overfills
overfills:
    mov x7, x30
    mov x0, #0
    bl takes
    ldr x10, =0x080b0000
    mov w1, #0xffff
    str w1, [x10, #0x100]
    ldr x5, =0x41000000
    mov x0, #0
1:  mov x2, #0
2:  lsl x3, x2, #24
    orr x3, x3, #1
    msr icc_sgi1r_el1, x3
    add x2, x2, #1
    cmp x2, #12
    b.ne 2b
    isb
    mov x2, #3
3:  mrs x1, icc_iar1_el1
    msr icc_eoir1_el1, x1
    sub x2, x2, #1
    cbnz x2, 3b
    b 4f
4:  mrs x1, icc_iar1_el1
    str x1, [x5]
    msr icc_eoir1_el1, x1
5:  mrs x1, icc_iar1_el1
    cmp x1, #1020
    b.hs 6f
    msr icc_eoir1_el1, x1
    b 5b
6:  add x5, x5, #0x1000
    add x0, x0, #1
    cmp x0, #8192
    b.lo 1b
    mov x30, x7
    ret
    .ltorg

    // Sleeps until the next hundredth of a second, which is the same for all, over and over: vCPU x0.
    .global wakes
wakes:
    bl takes
    mrs x11, cntfrq_el0
    mov x1, #100
    udiv x11, x11, x1
1:  mrs x1, cntvct_el0
    udiv x1, x1, x11
    madd x1, x1, x11, x11
    msr cntv_cval_el0, x1
    mov x1, #1
    msr cntv_ctl_el0, x1
2:  isb
    wfi
    mrs x1, icc_iar1_el1
    cmp x1, #1020
    b.hs 2b
    cmp x1, #27
    b.eq 3f
    msr icc_eoir1_el1, x1
    b 2b
3:  msr cntv_ctl_el0, xzr
    isb
    msr icc_eoir1_el1, x1
    b 1b
    .ltorg

    // An exception is of the instruction that has made it, which is left out.
    .balign 2048
skips:
    .rept 16
    .balign 128
    mrs x13, elr_el1
    add x13, x13, #4
    msr elr_el1, x13
    eret
    .endr
    "#,
    main = sym super::bare::main,
    measure = sym super::bare::measure,
    window = sym super::bare::WINDOW,
);
