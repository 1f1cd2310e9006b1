//! The trapped system registers and instructions of a guest, answered as the architecture says: those that the table of
//! registers has as [`Trapped`](Treatment::Trapped) by code here, and the others by the table.

use core::arch::asm;

use mayfly_vm::stage2::Format;
use mayfly_vm::{CacheOp, Event};

use super::guest::{GuestCpu, HCR_AUTHENTICATION};
use super::machine::{Machine, Next, Reason};
use super::{common, cpu};
use crate::counters::{self, Offered};
use crate::debug::Place;
use crate::id;
use crate::inject::Exception;
use crate::syndrome::SystemAccess;
use crate::sysreg::{self, SysReg};
use crate::table::{self, Treatment};

/// `SCTLR_EL1.M` and `C`: caches count as on when both are set.
const CACHES: u64 = 1 | 1 << 2;
/// Of `PSTATE`, the exception level.
const LEVEL: u64 = 3 << 2;

impl<F: Format, M: Machine> GuestCpu<'_, F, M> {
    /// Answers an access to a system register.
    pub(super) fn system(&mut self, access: SystemAccess) -> Result<Next, Event> {
        let SystemAccess { register, rt, write } = access;
        let value = self.registers.get(rt);
        let written = write.then_some(value);
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
            _ if is_key(register) && cpu::has_pointer_authentication() => {
                return Ok(self.use_keys());
            }
            _ if is_of_caches(register) => {
                self.machine.count(Reason::CacheRegister);
                caches(register, written)
            }
            _ if let Some(offered) = common::counters()
                && let Some(place) = counters::Place::of(register) =>
            {
                self.machine.count(Reason::OtherRegister);
                self.counters(place, written, &offered)
            }
            _ if register.op0() == 2 => {
                self.machine.count(Reason::DebugRegister);
                self.debug(register, written)
            }
            _ => match table::treatment(register) {
                Treatment::Reads(value) | Treatment::Ignores(value) if !write => {
                    self.machine.count(Reason::OtherRegister);
                    Answer::Read(value)
                }
                Treatment::Ignores(_) => {
                    self.machine.count(Reason::OtherRegister);
                    Answer::Done
                }
                _ => {
                    self.machine.count(Reason::Undefined);
                    Answer::Undefined
                }
            },
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

    /// The guest has used a key of pointer authentication for the first time, and does so again: its keys are in the
    /// processor while it is, and nothing of them traps.
    pub(super) fn use_keys(&mut self) -> Next {
        self.machine.count(Reason::OtherRegister);
        self.resident.use_keys();
        self.confine();
        let hcr = crate::read_register!("hcr_el2") | HCR_AUTHENTICATION;
        // SAFETY: the keys in the processor are the guest's.
        unsafe { crate::write_register!("hcr_el2", hcr) };
        Next::Resume
    }

    /// A debug register: single steps, breakpoints, watchpoints and the OS lock are the guest's own.
    fn debug(&self, register: SysReg, written: Option<u64>) -> Answer {
        let ids = cpu::debug_ids();
        if let Some(place) = Place::of(register, ids.breakpoints(), ids.watchpoints()) {
            return match written {
                Some(value) => {
                    self.resident.set_debug(place, value);
                    Answer::Done
                }
                None => Answer::Read(self.resident.debug().get(place)),
            };
        }
        match (register, table::treatment(register), written) {
            (sysreg::MDSCR_EL1 | sysreg::OSLAR_EL1, _, Some(value)) => {
                let is_lock = register == sysreg::OSLAR_EL1;
                let present = crate::read_register!("mdscr_el1");
                let control = self.resident.change_debug(|debug| {
                    if is_lock {
                        debug.set_lock(value & 1 == 1, present)
                    } else {
                        debug.set_control(value)
                    }
                });
                // SAFETY: a register of the guest's.
                unsafe { crate::write_register!("mdscr_el1", control) };
                Answer::Done
            }
            (sysreg::MDSCR_EL1, _, None) => {
                Answer::Read(self.resident.debug().control(crate::read_register!("mdscr_el1")))
            }
            (sysreg::OSLSR_EL1, _, None) => Answer::Read(self.resident.debug().lock()),
            (_, Treatment::Ignores(_), Some(_)) => Answer::Done,
            (_, Treatment::Reads(value) | Treatment::Ignores(value), None) => Answer::Read(value),
            _ => Answer::Undefined,
        }
    }

    /// A register of the performance counters.
    fn counters(
        &mut self,
        place: counters::Place,
        written: Option<u64>,
        offered: &Offered,
    ) -> Answer {
        let answer =
            self.resident.count(place, written, self.registers.pstate & LEVEL == 0, offered);
        if let Some(high) = self.resident.counters_line() {
            self.machine.counters_line(high);
        }
        match answer {
            Some(_) if written.is_some() => Answer::Done,
            Some(value) => Answer::Read(value),
            None => Answer::Undefined,
        }
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

/// Whether `register` is a half of a key of pointer authentication: `AP*Key*_EL1`.
const fn is_key(register: SysReg) -> bool {
    matches!((register.op0(), register.op1(), register.crn()), (3, 0, 2))
        && matches!((register.crm(), register.op2()), (1 | 2, 0..=3) | (3, 0 | 1))
}

/// Whether `HCR_EL2.TID2` traps `register`: where processors differ in what they say of their caches.
fn is_of_caches(register: SysReg) -> bool {
    matches!(
        register,
        sysreg::CTR_EL0
            | sysreg::CCSIDR_EL1
            | sysreg::CCSIDR2_EL1
            | sysreg::CLIDR_EL1
            | sysreg::CSSELR_EL1
    )
}

/// What all processors have in common is in `CTR_EL0`. The other registers are as this processor has them, and `CSSELR_EL1`
/// is the guest's: they are for operations by set and way, which come out to EL2.
fn caches(register: SysReg, written: Option<u64>) -> Answer {
    match (register, written) {
        (sysreg::CTR_EL0, None) => Answer::Read(common::caches().bits()),
        (sysreg::CLIDR_EL1, None) => Answer::Read(crate::read_register!("clidr_el1")),
        (sysreg::CCSIDR_EL1, None) => Answer::Read(crate::read_register!("ccsidr_el1")),
        (sysreg::CCSIDR2_EL1, None) if cpu::has_wide_cache_sizes() => {
            Answer::Read(crate::read_register!("s3_1_c0_c0_2"))
        }
        (sysreg::CSSELR_EL1, None) => Answer::Read(crate::read_register!("csselr_el1")),
        (sysreg::CSSELR_EL1, Some(value)) => {
            // SAFETY: a register of the guest's. What is read by it comes later.
            unsafe {
                crate::write_register!("csselr_el1", value);
                asm!("isb", options(nostack));
            }
            Answer::Done
        }
        _ => Answer::Undefined,
    }
}

enum Answer {
    Read(u64),
    Done,
    Undefined,
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
