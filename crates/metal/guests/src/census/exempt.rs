//! Registers that are not compared, and bits that are not written, each with its reason.

use mayfly_arm64_registers::sysreg::SysReg;

/// Registers that say something else each time that they are read, whatever the other VM does: counters, and random
/// numbers.
const EXCLUDED: [SysReg; 8] = [
    SysReg::new(3, 3, 2, 4, 0),  // RNDR
    SysReg::new(3, 3, 2, 4, 1),  // RNDRRS
    SysReg::new(3, 3, 14, 0, 1), // CNTPCT_EL0
    SysReg::new(3, 3, 14, 0, 2), // CNTVCT_EL0
    SysReg::new(3, 3, 14, 0, 5), // CNTPCTSS_EL0
    SysReg::new(3, 3, 14, 0, 6), // CNTVCTSS_EL0
    CNTP_TVAL_EL0,               // its compare value, less the counter
    CNTV_TVAL_EL0,               // the same
];

const SCTLR_EL1: SysReg = SysReg::new(3, 0, 1, 0, 0);
const ICC_BPR0_EL1: SysReg = SysReg::new(3, 0, 12, 8, 3);
const ICC_BPR1_EL1: SysReg = SysReg::new(3, 0, 12, 12, 3);
const CNTV_TVAL_EL0: SysReg = SysReg::new(3, 3, 14, 3, 0);
const CNTV_CTL_EL0: SysReg = SysReg::new(3, 3, 14, 3, 1);
const CNTV_CVAL_EL0: SysReg = SysReg::new(3, 3, 14, 3, 2);
const CNTP_TVAL_EL0: SysReg = SysReg::new(3, 3, 14, 2, 0);
const CNTP_CVAL_EL0: SysReg = SysReg::new(3, 3, 14, 2, 2);

/// Whether it is not compared.
pub(crate) fn is_excluded(register: SysReg) -> bool {
    EXCLUDED.contains(&register)
}

/// Whether it is of the timer that wakes this guest.
pub(crate) fn is_timer(register: SysReg) -> bool {
    matches!(register, CNTV_TVAL_EL0 | CNTV_CTL_EL0 | CNTV_CVAL_EL0)
}

/// Whether the table hides it, and QEMU before 8.2 shows it all the same: it ignores `HCR_EL2.TIDCP`.
pub(crate) fn is_shown(register: SysReg) -> bool {
    register.op0() == 3 && matches!(register.crn(), 11 | 15)
}

/// The bits of `register` that are written.
pub(crate) fn harmless(register: SysReg) -> u64 {
    match register {
        // M: there are no tables to translate by.
        SCTLR_EL1 => !1,
        // QEMU 7.2 ends on binary points of more than three bits.
        ICC_BPR0_EL1 | ICC_BPR1_EL1 => 7,
        // QEMU 7.2 hangs on times that are past 2^64, seen from the physical counter.
        CNTV_CVAL_EL0 | CNTP_CVAL_EL0 => u64::MAX >> 4,
        CNTV_TVAL_EL0 | CNTP_TVAL_EL0 => u64::MAX >> 33,
        _ => u64::MAX,
    }
}
