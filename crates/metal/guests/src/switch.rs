//! A guest of two vCPUs on one CPU that makes its hypervisor do two things, over and over: answer a hypercall, and
//! switch to the other vCPU. `scripts/switches` counts their instructions (`docs/bare-metal.md`).
//!
//! The hypercall is `PSCI_VERSION`. The hypervisor switches for two reasons. First the vCPUs wake each other in turn by
//! a software interrupt, and wait for the next one in `WFI`. Then both are busy, so that time slices end; at first
//! without registers that not every vCPU has, then with the keys of pointer authentication, where the CPU has some, then
//! with the physical timer, too, then with breakpoints and watchpoints, too, and at last with performance counters, too.

#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
core::arch::global_asm!(
    include_str!("header.S"),
    r#"
    .equ ROUNDS, 64

first:
    mov x19, #ROUNDS
1:  ldr w0, =0x84000000
    .global asks
asks:
    hvc #0
    subs x19, x19, #1
    b.ne 1b

    // Alone, so that its slices end while no other thread wants the CPU.
    mrs x0, cntfrq_el0
    mov x1, #40
    bl works
    // PSCI CPU_ON: the other, which is to find the wakes.
    bl take_interrupts
    ldr w0, =0xc4000003
    mov x1, #1
    adr x2, second
    hvc #0
    cbnz x0, failed
    bl await

    mov x19, #ROUNDS
2:  mov x0, #1
    bl wake
    bl await
    subs x19, x19, #1
    b.ne 2b

    // A dozen slices of 10 ms.
    mov x0, #1
    bl wake
    mrs x0, cntfrq_el0
    mov x1, #8
    bl works
    // A dozen more, of two vCPUs that have keys, where there are some; a dozen of two that have the physical timer, too; a
    // dozen of two that have breakpoints and watchpoints, too; and a dozen of two that have performance counters, too.
    bl authenticate
    bl time
    mrs x0, cntfrq_el0
    mov x1, #8
    bl works
    bl watch
    mrs x0, cntfrq_el0
    mov x1, #8
    bl works
    bl count
    mrs x0, cntfrq_el0
    mov x1, #8
    bl works
    ldr w0, =0x84000008
    hvc #0
failed:
    wfi
    b failed

second:
    bl take_interrupts
    mov x0, #0
    bl wake
    mov x19, #ROUNDS
4:  bl await
    mov x0, #0
    bl wake
    subs x19, x19, #1
    b.ne 4b
    bl await
    mrs x0, cntfrq_el0
    mov x1, #8
    bl works
    bl authenticate
    bl time
    mrs x0, cntfrq_el0
    mov x1, #8
    bl works
    bl watch
    mrs x0, cntfrq_el0
    mov x1, #8
    bl works
    bl count
    mov x1, #-1
    bl is_busy

    // From the first access to a key on, all of them are switched.
authenticate:
    mrs x0, id_aa64isar1_el1
    tst x0, #0xff0
    b.eq 1f
    msr s3_0_c2_c1_0, x0
    .global keyed
keyed:
    mrs x0, cntfrq_el0
    mov x1, #8
    b works
1:  ret

    // From the first access to one on, its registers are switched. It is due in some hours.
time:
    mrs x0, cntpct_el0
    mov x1, #(1 << 40)
    add x0, x0, x1
    msr cntp_cval_el0, x0
    mov x0, #1
    msr cntp_ctl_el0, x0
    .global timed
timed:
    ret

    // From the first one that is enabled on, the registers are switched.
watch:
    mov x0, #1
    msr dbgwcr0_el1, x0
    .global watched
watched:
    ret

    // All that there are count, from the last write on: each is an exit.
count:
    mov w0, #-1
    msr pmcntenset_el0, x0
    mov x0, #1
    msr pmcr_el0, x0
    .global counted
counted:
    ret

    // Software interrupts are shown to this vCPU, and masked: they end its waiting, and no more.
take_interrupts:
    msr daifset, #15
    mrs x1, mpidr_el1
    and x1, x1, #0xff
    ldr x0, =0x080a0000
    add x0, x0, x1, lsl #17
    str wzr, [x0, #0x14]
    add x0, x0, #0x10000
    mov w1, #0xffff
    str w1, [x0, #0x80]
    str w1, [x0, #0x100]
    ldr x0, =0x08000000
    mov w1, #0x12
    str w1, [x0]
    mov x1, #7
    msr icc_sre_el1, x1
    isb
    mov x1, #0xf0
    msr icc_pmr_el1, x1
    mov x1, #1
    msr icc_igrpen1_el1, x1
    isb
    ret

    // Wakes the vCPU in x0, by interrupt 1.
wake:
    mov x1, #1
    lsl x1, x1, x0
    orr x1, x1, #(1 << 24)
    msr icc_sgi1r_el1, x1
    isb
    ret

await:
    .global waits
waits:
    wfi
    mrs x0, icc_iar1_el1
    cmp x0, #1
    b.ne await
    msr icc_eoir1_el1, x0
    isb
    ret
    .ltorg

    // Works until x0 ticks, divided by x1, are over.
works:
    udiv x0, x0, x1
    mrs x1, cntvct_el0
    add x1, x1, x0
    b is_busy

    // In a page of its own, whose instructions are not logged.
    .balign 4096
    .global is_busy
is_busy:
    mrs x0, cntvct_el0
    cmp x0, x1
    b.lo is_busy
    ret
    "#
);

#[cfg(target_os = "none")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("this is a guest for a machine of its own: `make metal-test` builds and runs it");
    std::process::exit(1);
}
