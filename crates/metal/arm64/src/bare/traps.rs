//! The trapped system registers and instructions of a guest, answered as the architecture says.

use core::arch::asm;

use mayfly_vm::{CacheOp, Event};

use super::common;
use super::guest::GuestCpu;
use super::machine::{Machine, Next, Reason};
use crate::id;
use crate::inject::Exception;
use crate::syndrome::SystemAccess;
use crate::sysreg::{self, SysReg};

/// `SCTLR_EL1.M` and `C`: caches count as on when both are set.
const CACHES: u64 = 1 | 1 << 2;

impl<M: Machine> GuestCpu<'_, M> {
    /// Answers an access to a system register.
    pub(super) fn system(&mut self, access: SystemAccess) -> Result<Next, Event> {
        let SystemAccess { register, rt, write } = access;
        let value = self.registers.get(rt);
        let answer = match register {
            _ if register.is_id() && !write => {
                self.machine.count(Reason::IdRegister);
                Answer::Read(id::visible(
                    register,
                    common::id_register(register),
                    self.confinement.pa_range,
                ))
            }
            sysreg::ICC_SGI1R_EL1 | sysreg::ICC_ASGI1R_EL1 | sysreg::ICC_SGI0R_EL1 if write => {
                self.machine.count(Reason::SoftwareInterrupt);
                self.machine.send_interrupt(register, value);
                Answer::Done
            }
            sysreg::ICC_DIR_EL1 if write => {
                self.machine.count(Reason::OtherRegister);
                self.machine.deactivate(value);
                Answer::Done
            }
            sysreg::SCTLR_EL1 if write => {
                self.machine.count(Reason::CacheRegister);
                return Err(self.write_sctlr(value));
            }
            sysreg::DC_ISW | sysreg::DC_CSW | sysreg::DC_CISW => {
                self.machine.count(Reason::CacheRegister);
                self.skip();
                return Err(Event::Caches(CacheOp::SetWay));
            }
            _ if write && write_stage1(register, value) => {
                self.machine.count(Reason::CacheRegister);
                Answer::Done
            }
            sysreg::CNTP_TVAL_EL0 | sysreg::CNTP_CTL_EL0 | sysreg::CNTP_CVAL_EL0 => {
                self.machine.count(Reason::OtherRegister);
                self.resident.use_physical_timer();
                return Ok(Next::Resume);
            }
            // Nothing of it is the guest's to change.
            sysreg::ACTLR_EL1 => {
                self.machine.count(Reason::OtherRegister);
                Answer::read_or_ignored(write, 0)
            }
            // System registers are what there is: SRE, DFB, DIB.
            sysreg::ICC_SRE_EL1 => {
                self.machine.count(Reason::OtherRegister);
                Answer::read_or_ignored(write, 7)
            }
            _ if is_debug(register) => {
                self.machine.count(Reason::DebugRegister);
                debug(register, write.then_some(value))
            }
            _ => {
                self.machine.count(Reason::Undefined);
                Answer::Undefined
            }
        };
        match answer {
            Answer::Read(value) => {
                self.registers.set(rt, value);
                self.skip();
            }
            Answer::Done => self.skip(),
            Answer::Undefined => self.take_exception(Exception::Undefined, None),
        }
        Ok(Next::Resume)
    }

    /// Writes `SCTLR_EL1`, which may turn the caches on or off.
    fn write_sctlr(&mut self, value: u64) -> Event {
        let were_on = crate::read_register!("sctlr_el1") & CACHES == CACHES;
        // SAFETY: a register of the guest's.
        unsafe { crate::write_register!("sctlr_el1", value) };
        self.skip();
        match (were_on, value & CACHES == CACHES) {
            (false, true) => Event::Caches(CacheOp::On),
            (true, false) => Event::Caches(CacheOp::Off),
            _ => Event::Request,
        }
    }
}

enum Answer {
    Read(u64),
    Done,
    Undefined,
}

impl Answer {
    fn read_or_ignored(write: bool, value: u64) -> Self {
        if write { Self::Done } else { Self::Read(value) }
    }
}

/// Writes a register of stage 1 that `HCR_EL2.TVM` traps, but `SCTLR_EL1`; says whether it is one.
fn write_stage1(register: SysReg, value: u64) -> bool {
    // SAFETY: registers of the guest's.
    unsafe {
        match register {
            sysreg::TTBR0_EL1 => crate::write_register!("ttbr0_el1", value),
            sysreg::TTBR1_EL1 => crate::write_register!("ttbr1_el1", value),
            sysreg::TCR_EL1 => crate::write_register!("tcr_el1", value),
            sysreg::ESR_EL1 => crate::write_register!("esr_el1", value),
            sysreg::FAR_EL1 => crate::write_register!("far_el1", value),
            sysreg::AFSR0_EL1 => crate::write_register!("afsr0_el1", value),
            sysreg::AFSR1_EL1 => crate::write_register!("afsr1_el1", value),
            sysreg::MAIR_EL1 => crate::write_register!("mair_el1", value),
            sysreg::AMAIR_EL1 => crate::write_register!("amair_el1", value),
            sysreg::CONTEXTIDR_EL1 => crate::write_register!("contextidr_el1", value),
            _ => return false,
        }
        asm!("isb", options(nostack));
    }
    true
}

/// Whether it is of those that `MDCR_EL2.TDA`, `TDOSA` and `TDRA` trap: `op0` 2, below `CRn` 2 and `op1` 0.
fn is_debug(register: SysReg) -> bool {
    register.op0() == 2 && register.op1() == 0 && register.crn() < 2
}

/// A debug register: single steps are the guest's own; breakpoints and watchpoints read as zero, and are never taken;
/// the OS lock is off.
fn debug(register: SysReg, written: Option<u64>) -> Answer {
    /// KDE, SS, MDE and the EL0 accesses: not what belongs to a debugger outside.
    const MDSCR: u64 = 1 | 1 << 12 | 1 << 13 | 1 << 15;
    match (register, written) {
        (sysreg::MDSCR_EL1, Some(value)) => {
            // SAFETY: a register of the guest's.
            unsafe { crate::write_register!("mdscr_el1", value & MDSCR) };
            Answer::Done
        }
        (sysreg::MDSCR_EL1, None) => Answer::Read(crate::read_register!("mdscr_el1")),
        // OSLM, 0b10: there is an OS lock.
        (sysreg::OSLSR_EL1, None) => Answer::Read(1 << 3),
        (sysreg::OSLSR_EL1, Some(_)) => Answer::Undefined,
        (_, Some(_)) => Answer::Done,
        (_, None) => Answer::Read(0),
    }
}
