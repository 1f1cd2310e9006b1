//! The MSRs of a local APIC: its registers in x2APIC mode, `IA32_APIC_BASE`, and `IA32_TSC_DEADLINE`.

use crate::GeneralProtection;
use crate::address::Mode;
use crate::local::LocalApic;
use crate::local::register::Register;
use crate::timer::Time;
use crate::vapic::{Kick, Vapic};

/// `IA32_APIC_BASE`.
pub const APIC_BASE: u32 = 0x1b;

/// `IA32_TSC_DEADLINE`.
pub const TSC_DEADLINE: u32 = 0x6e0;

/// The MSRs that are registers in x2APIC mode; the last is one behind them.
pub const REGISTERS: core::ops::Range<u32> = 0x800..0x900;

const BOOT_PROCESSOR: u64 = 1 << 8;
const EXTENDED: u64 = 1 << 10;
const ENABLED: u64 = 1 << 11;

impl<K: Kick> Vapic<K> {
    /// The guest reads an MSR: [`APIC_BASE`], [`TSC_DEADLINE`], or one of [`REGISTERS`].
    ///
    /// # Errors
    ///
    /// The guest has a general-protection fault: there is no such MSR, not in this mode, or it is not read.
    pub fn read_msr(
        &self,
        apic: &mut LocalApic,
        msr: u32,
        now: Time,
    ) -> Result<u64, GeneralProtection> {
        self.advance(apic, now);
        match msr {
            APIC_BASE => Ok(base(apic)),
            TSC_DEADLINE if self.config.tsc_deadline => Ok(apic.timer.deadline()),
            _ => {
                let register = register(apic, msr).ok_or(GeneralProtection)?;
                if !register.is_read() {
                    return Err(GeneralProtection);
                }
                Ok(self.value(apic, register, now))
            }
        }
    }

    /// The guest writes an MSR: [`APIC_BASE`], [`TSC_DEADLINE`], or one of [`REGISTERS`].
    ///
    /// # Errors
    ///
    /// The guest has a general-protection fault: there is no such MSR, not in this mode, or it is not written, or not so.
    pub fn write_msr(
        &self,
        apic: &mut LocalApic,
        msr: u32,
        value: u64,
        now: Time,
    ) -> Result<(), GeneralProtection> {
        self.advance(apic, now);
        match msr {
            APIC_BASE => self.set_base(apic, value),
            TSC_DEADLINE if self.config.tsc_deadline => {
                apic.timer.set_deadline(value);
                // One that has passed is an interrupt at once.
                self.advance(apic, now);
                Ok(())
            }
            _ => {
                let register = register(apic, msr).ok_or(GeneralProtection)?;
                let writable = register.writable(self.config.tsc_deadline);
                if !register.is_written(Mode::X2apic) || value & !writable != 0 {
                    return Err(GeneralProtection);
                }
                self.set(apic, register, value, now);
                Ok(())
            }
        }
    }

    /// `IA32_APIC_BASE` is written (Intel SDM volume 3, 11.4.4 and 11.12.5; AMD APM volume 2, 16.9). From x2APIC mode the
    /// way leads through the APIC that is off, where all its registers are lost.
    fn set_base(&self, apic: &mut LocalApic, value: u64) -> Result<(), GeneralProtection> {
        let page = page_bits(self.config.physical_bits);
        let extended = if self.config.x2apic { EXTENDED } else { 0 };
        if value & !(page | BOOT_PROCESSOR | extended | ENABLED) != 0 {
            return Err(GeneralProtection);
        }
        let mode = match (apic.mode(), value & ENABLED != 0, value & EXTENDED != 0) {
            (_, false, true) | (Mode::Disabled, true, true) | (Mode::X2apic, true, false) => {
                return Err(GeneralProtection);
            }
            (_, false, false) => Mode::Disabled,
            (_, true, false) => Mode::Xapic,
            (_, true, true) => Mode::X2apic,
        };
        apic.page = value & page;
        let was = apic.mode();
        if was == mode {
            return Ok(());
        }
        apic.address.mode = mode;
        if was == Mode::Disabled || mode == Mode::Disabled {
            self.forget(apic);
        }
        if mode == Mode::X2apic {
            // The destination is 32 bits now, and what was written of 8 of them means nothing.
            apic.icr &= 0xffff_ffff;
        }
        self.publish(apic);
        Ok(())
    }
}

/// The bits of the address of the page.
pub(crate) const fn page_bits(physical_bits: u32) -> u64 {
    (1 << physical_bits) - 0x1000
}

/// `IA32_APIC_BASE` as it reads. Which vCPU is the boot processor is not the guest's to write.
fn base(apic: &LocalApic) -> u64 {
    let mode = match apic.mode() {
        Mode::Disabled => 0,
        Mode::Xapic => ENABLED,
        Mode::X2apic => ENABLED | EXTENDED,
    };
    apic.page | mode | if apic.vcpu == 0 { BOOT_PROCESSOR } else { 0 }
}

fn register(apic: &LocalApic, msr: u32) -> Option<Register> {
    if apic.mode() != Mode::X2apic || !REGISTERS.contains(&msr) {
        return None;
    }
    Register::at(msr - REGISTERS.start, Mode::X2apic)
}
