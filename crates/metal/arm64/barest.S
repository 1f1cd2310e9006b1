// The shortest code that does what the world switch does (src/bare/switch.rs, context.rs, virtual_gic.rs), to be
// counted beside it (scripts/switches). It only finds out what kind of exit it is. It looks nothing up, chooses no
// thread and looks for no interrupt. It has no requests, holds no root and counts no exits. It is assembled, and never
// executed.
//
// A hypercall takes
//   x0 to x30, ELR_EL2, SPSR_EL2, of the guest
//   ESR_EL2, to recognise it
//
// and a switch to another vCPU, beside those,
//   SCTLR, CPACR, TTBR0, TTBR1, TCR, ESR, AFSR0, AFSR1, FAR, MAIR, AMAIR, VBAR, CONTEXTIDR, CNTKCTL, PAR, TPIDR, ELR, SPSR,
//   CSSELR, MDSCR of EL1; TPIDR_EL0, TPIDRRO_EL0; SP_EL0, SP_EL1
//   q0 to q31, FPSR, FPCR
//   CNTV_CTL_EL0, CNTV_CVAL_EL0, CNTVOFF_EL2
//   ICH_HCR_EL2, ICH_VMCR_EL2, ICH_AP0R0_EL2, ICH_AP1R0_EL2, and of the list registers one
//   VMPIDR_EL2, HCR_EL2, VTTBR_EL2
//   where vCPUs of one VM share a VMID, the processor's TLB entries under it
//   EL2's timer, which ends the slice
//
// It leaves out keys of pointer authentication (10 registers, a Cortex-A72 has none), and the physical interrupt of the
// virtual timer, which is one store.

    .arch_extension fp
    .arch_extension simd
    .equ PC, 248
    .equ BANKED, 264
    .equ TIMER, 456
    .equ STATUS, 480
    .equ VECTORS, 496
    .equ GIC, 1008

    .macro general instruction base
    \instruction x2, x3, [\base, #16]
    \instruction x4, x5, [\base, #32]
    \instruction x6, x7, [\base, #48]
    \instruction x8, x9, [\base, #64]
    \instruction x10, x11, [\base, #80]
    \instruction x12, x13, [\base, #96]
    \instruction x14, x15, [\base, #112]
    \instruction x16, x17, [\base, #128]
    \instruction x18, x19, [\base, #144]
    \instruction x20, x21, [\base, #160]
    \instruction x22, x23, [\base, #176]
    \instruction x24, x25, [\base, #192]
    \instruction x26, x27, [\base, #208]
    \instruction x28, x29, [\base, #224]
    .endm

    // TPIDR_EL2 is where the registers of the vCPU are.
    .macro out
    stp x0, x1, [sp, #-16]!
    mrs x0, tpidr_el2
    general stp, x0
    str x30, [x0, #240]
    ldp x2, x3, [sp], #16
    stp x2, x3, [x0]
    mrs x2, elr_el2
    mrs x3, spsr_el2
    stp x2, x3, [x0, #PC]
    .endm

    .macro in
    ldp x1, x2, [x0, #PC]
    msr elr_el2, x1
    msr spsr_el2, x2
    general ldp, x0
    ldr x30, [x0, #240]
    ldp x0, x1, [x0]
    eret
    .endm

    .macro each_vector instruction base
    .irp n, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
    two_vectors \instruction, \base, \n
    .endr
    .endm
    .macro two_vectors instruction base n
    .altmacro
    two_named \instruction, \base, \n, %(\n + 1)
    .noaltmacro
    .endm
    .macro two_named instruction base n m
    \instruction q\n, q\m, [\base, #(\n * 16)]
    .endm

    .macro save_two first second at
    mrs x1, \first
    mrs x2, \second
    stp x1, x2, [x0, #\at]
    .endm
    .macro load_two first second at
    ldp x1, x2, [x0, #\at]
    msr \first, x1
    msr \second, x2
    .endm

    .macro banked move
    \move sctlr_el1, cpacr_el1, BANKED
    \move ttbr0_el1, ttbr1_el1, BANKED + 16
    \move tcr_el1, esr_el1, BANKED + 32
    \move afsr0_el1, afsr1_el1, BANKED + 48
    \move far_el1, mair_el1, BANKED + 64
    \move amair_el1, vbar_el1, BANKED + 80
    \move contextidr_el1, cntkctl_el1, BANKED + 96
    \move par_el1, tpidr_el1, BANKED + 112
    \move elr_el1, spsr_el1, BANKED + 128
    \move csselr_el1, mdscr_el1, BANKED + 144
    \move tpidr_el0, tpidrro_el0, BANKED + 160
    \move sp_el0, sp_el1, BANKED + 176
    .endm

    .section .text.barest_hypercall, "ax"
    .global barest_hypercall
barest_hypercall:
    out
    mrs x1, esr_el2
    lsr x1, x1, #26
    cmp x1, #0x16
    b.ne barest_switch
    mov x1, #1
    movk x1, #1, lsl #16
    str x1, [x0]
    in
    .size barest_hypercall, . - barest_hypercall

    .section .text.barest_switch, "ax"
    .global barest_switch
    // x28 is what VTTBR_EL2, and HCR_EL2, are to be; x29 the registers of the other vCPU.
barest_switch:
    out
    banked save_two
    add x3, x0, #VECTORS
    each_vector stp, x3
    save_two fpsr, fpcr, STATUS
    save_two cntv_ctl_el0, cntv_cval_el0, TIMER
    msr cntv_ctl_el0, xzr
    add x0, x0, #GIC
    mrs x1, ich_lr0_el2
    msr ich_lr0_el2, xzr
    mrs x2, ich_vmcr_el2
    stp x1, x2, [x0]
    mrs x1, ich_ap0r0_el2
    mrs x2, ich_ap1r0_el2
    stp x1, x2, [x0, #16]
    msr ich_hcr_el2, xzr

    ldp x2, x0, [sp]
    msr tpidr_el2, x0
    banked load_two
    add x3, x0, #VECTORS
    each_vector ldp, x3
    load_two fpsr, fpcr, STATUS
    ldp x1, x2, [x0, #TIMER]
    ldr x3, [x0, #TIMER + 16]
    msr cntvoff_el2, x3
    msr cntv_cval_el0, x2
    isb
    msr cntv_ctl_el0, x1
    add x4, x0, #GIC
    ldp x1, x2, [x4]
    msr ich_lr0_el2, x1
    msr ich_vmcr_el2, x2
    ldp x1, x2, [x4, #16]
    msr ich_ap0r0_el2, x1
    msr ich_ap1r0_el2, x2
    ldp x1, x2, [x4, #32]
    msr ich_hcr_el2, x1
    msr vmpidr_el2, x2
    ldp x1, x2, [x4, #48]
    msr hcr_el2, x1
    msr vttbr_el2, x2
    dsb ish
    isb
    tlbi vmalle1
    dsb nsh
    isb
    mrs x1, cntpct_el0
    ldr x2, [x4, #64]
    add x1, x1, x2
    msr cnthp_cval_el2, x1
    in
    .size barest_switch, . - barest_switch
