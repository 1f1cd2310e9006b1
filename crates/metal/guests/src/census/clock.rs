//! The machine's counter, the guest's timer, and the slots.

use core::arch::asm;

use mayfly_arm64_registers::sysreg::SysReg;

use crate::exempt;

/// The physical counter.
pub(crate) fn now() -> u64 {
    let now;
    // SAFETY: reads a register.
    unsafe { asm!("isb", "mrs {}, cntpct_el0", out(reg) now, options(nomem, nostack)) };
    now
}

/// How far the guest's virtual counter is behind the physical one, which EL0 may not read.
pub(crate) fn offset() -> u64 {
    let (physical, before): (u64, u64);
    // SAFETY: reads registers.
    unsafe {
        asm!("isb", "mrs {}, cntvct_el0", "mrs {}, cntpct_el0", out(reg) before, out(reg) physical, options(nomem, nostack));
    }
    physical - before
}

/// Has `WFI` end when the virtual counter says `at`. The interrupt controller is as at reset, so that there is no
/// interrupt.
pub(crate) fn wake_at(at: u64) {
    // SAFETY: the guest's timer, which interrupts nothing.
    unsafe {
        asm!(
            "msr cntv_cval_el0, {}", "msr cntv_ctl_el0, {}", "isb", in(reg) at, in(reg) 1_u64,
            options(nomem, nostack),
        );
    }
}

/// Turns the guest's timer off: it says always the same.
pub(crate) fn stop() {
    // SAFETY: as above.
    unsafe {
        asm!(
            "msr cntv_ctl_el0, xzr", "msr cntv_cval_el0, {}", "isb", in(reg) 0x1234_5678_u64,
            options(nomem, nostack),
        );
    }
}

/// When the first slot begins: both VMs start before, in the same 4 seconds.
pub(crate) fn epoch() -> u64 {
    ((now() >> 28) + 1) << 28
}

/// Half of the slot of `register`, in ticks.
///
/// What is written to the timer itself leaves no timer to wait for. Such slots are long: the VMs spin, and the ends of
/// their time slices (10 ms) switch between them.
pub(crate) fn half(register: Option<SysReg>) -> u64 {
    if register.is_some_and(exempt::is_timer) { 1 << 22 } else { 1 << 17 }
}
