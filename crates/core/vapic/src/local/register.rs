//! The registers of a local APIC, at the same numbers as memory in steps of 16 bytes, and as MSRs from 0x800 on (Intel SDM
//! volume 3, tables 11-1 and 11-6; AMD APM volume 2, tables 16-2 and 16-6).

use crate::address::Mode;
use crate::lvt;
use crate::timer::DIVIDE;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Register {
    Id,
    Version,
    Tpr,
    Ppr,
    Eoi,
    Ldr,
    Dfr,
    Svr,
    Isr(usize),
    Tmr(usize),
    Irr(usize),
    Esr,
    /// In x2APIC mode both halves.
    Icr,
    IcrHigh,
    Lvt(usize),
    InitialCount,
    CurrentCount,
    Divide,
    SelfIpi,
}

impl Register {
    /// The register of a number, in a mode that has registers.
    pub(crate) const fn at(number: u32, mode: Mode) -> Option<Self> {
        let register = match number {
            0x02 => Self::Id,
            0x03 => Self::Version,
            0x08 => Self::Tpr,
            0x0a => Self::Ppr,
            0x0b => Self::Eoi,
            0x0d => Self::Ldr,
            0x0e => Self::Dfr,
            0x0f => Self::Svr,
            0x10..=0x17 => Self::Isr((number - 0x10) as usize),
            0x18..=0x1f => Self::Tmr((number - 0x18) as usize),
            0x20..=0x27 => Self::Irr((number - 0x20) as usize),
            0x28 => Self::Esr,
            0x30 => Self::Icr,
            0x31 => Self::IcrHigh,
            0x32..=0x37 => Self::Lvt((number - 0x32) as usize),
            0x38 => Self::InitialCount,
            0x39 => Self::CurrentCount,
            0x3e => Self::Divide,
            0x3f => Self::SelfIpi,
            _ => return None,
        };
        match (mode, register) {
            (Mode::Disabled, _)
            | (Mode::X2apic, Self::Dfr | Self::IcrHigh)
            | (Mode::Xapic, Self::SelfIpi) => None,
            _ => Some(register),
        }
    }

    pub(crate) const fn is_read(self) -> bool {
        !matches!(self, Self::Eoi | Self::SelfIpi)
    }

    pub(crate) const fn is_written(self, mode: Mode) -> bool {
        match self {
            Self::Id
            | Self::Version
            | Self::Ppr
            | Self::Isr(_)
            | Self::Tmr(_)
            | Self::Irr(_)
            | Self::CurrentCount => false,
            Self::Ldr => matches!(mode, Mode::Xapic),
            _ => true,
        }
    }

    /// The bits that may be written as ones in x2APIC mode. In xAPIC mode the others are ignored.
    pub(crate) const fn writable(self, tsc_deadline: bool) -> u64 {
        match self {
            Self::Tpr | Self::SelfIpi => 0xff,
            // Vector, enable, and the check for focus processors, of which there are none.
            Self::Svr => 0x3ff,
            Self::Lvt(entry) => (lvt::writable(entry, tsc_deadline) | lvt::ignored(entry)) as u64,
            Self::InitialCount => 0xffff_ffff,
            Self::Divide => DIVIDE as u64,
            // Destination, shorthand, trigger, level, the delivery status, which is ignored, mode and vector.
            Self::Icr => 0xffff_ffff_000c_dfff,
            _ => 0,
        }
    }
}
