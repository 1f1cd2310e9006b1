//! What a guest finds at each MSR: what is listed here. Any other is absent: to read or write it is a general-protection
//! fault (AMD APM volume 2, appendix A).

use core::ops::Range;

use crate::svm::vmcb::SVME;

/// The MSRs that the guest reads and writes without coming out: those that VMLOAD and VMSAVE move (15.5.1), `FS.base`,
/// `GS.base`, and those of SYSENTER.
pub const DIRECT: [u32; 10] = [
    0x174,
    0x175,
    0x176,
    0xc000_0081,
    0xc000_0082,
    0xc000_0083,
    0xc000_0084,
    0xc000_0100,
    0xc000_0101,
    0xc000_0102,
];

/// What an MSR is that comes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Msr {
    /// `TSC`.
    Counter,
    /// `IA32_APIC_BASE`, `IA32_TSC_DEADLINE`, or a register of the local APIC.
    Apic,
    /// `PAT`.
    Pat,
    /// `EFER`.
    Efer,
    /// `TSC_AUX`, which RDTSCP reads.
    CounterAux,
    /// KVM's: where the guest is told the time.
    SystemTime,
    /// KVM's: where the guest is told the day.
    WallClock,
    /// One that reads as this, and ignores what is written.
    Constant(u64),
    /// There is none.
    Absent,
}

/// Of the local APIC, in x2APIC mode.
const APIC: Range<u32> = 0x800..0x900;

/// What `msr` is.
pub const fn msr(msr: u32) -> Msr {
    match msr {
        0x10 => Msr::Counter,
        0x1b | 0x6e0 => Msr::Apic,
        _ if msr >= APIC.start && msr < APIC.end => Msr::Apic,
        0x277 => Msr::Pat,
        0xc000_0080 => Msr::Efer,
        0xc000_0103 => Msr::CounterAux,
        0x4b56_4d00 => Msr::WallClock,
        0x4b56_4d01 => Msr::SystemTime,
        // The level of the microcode, which is not the guest's to load; SYSCFG, HWCR, NB_CFG; and DE_CFG, in which LFENCE
        // is serialising (bit 1).
        0x8b | 0xc001_0010 | 0xc001_0015 | 0xc001_001f => Msr::Constant(0),
        0xc001_1029 => Msr::Constant(2),
        _ => Msr::Absent,
    }
}

/// The bits of `EFER` that a guest has: SCE, LME, LMA and NXE.
const EFER: u64 = 1 << 0 | LME | LMA | 1 << 11;
const LME: u64 = 1 << 8;
const LMA: u64 = 1 << 10;
/// `CR0.PG`.
const PAGING: u64 = 1 << 31;

/// A general-protection fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// What the guest reads of its `EFER`.
pub const fn read_efer(efer: u64) -> u64 {
    efer & !SVME
}

/// What `EFER` becomes if the guest writes `value`, and its `CR0` is this.
///
/// # Errors
///
/// A bit that it does not have; or long mode turned on or off while paging is on.
pub const fn write_efer(efer: u64, value: u64, cr0: u64) -> Result<u64, Refused> {
    let changes_mode = (efer ^ value) & LME != 0 && cr0 & PAGING != 0;
    if value & !EFER != 0 || changes_mode {
        return Err(Refused);
    }
    // Whether long mode is active is not the guest's to write.
    Ok(value & !LMA | efer & LMA | SVME)
}

/// What `PAT` becomes if the guest writes `value`.
///
/// # Errors
///
/// One of its eight entries is no type of memory.
pub fn write_pat(value: u64) -> Result<u64, Refused> {
    let is_type = |kind: u8| matches!(kind, 0 | 1 | 4..=7);
    if value.to_le_bytes().into_iter().all(is_type) { Ok(value) } else { Err(Refused) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::svm::vmcb::PAT;

    #[test]
    fn what_is_not_listed_is_absent() {
        let listed = (0..0x2000).chain(0xc000_0000..0xc000_2000).chain(0xc001_0000..0xc001_2000);
        let present = listed.filter(|&number| !matches!(msr(number), Msr::Absent | Msr::Apic));
        assert!(present.eq([
            0x10,
            0x8b,
            0x277,
            0xc000_0080,
            0xc000_0103,
            0xc001_0010,
            0xc001_0015,
            0xc001_001f,
            0xc001_1029
        ]));
        assert!(DIRECT.into_iter().all(|number| msr(number) == Msr::Absent));
        // SVM's own.
        assert!([0xc001_0114, 0xc001_0117].into_iter().all(|number| msr(number) == Msr::Absent));
    }

    #[test]
    fn efer_has_what_is_listed_and_never_svm() {
        assert_eq!(read_efer(SVME | LME), LME);
        assert_eq!(write_efer(SVME, SVME, 0), Err(Refused));
        assert_eq!(write_efer(SVME, 1 << 14, 0), Err(Refused));
        assert_eq!(write_efer(SVME, LME | LMA, 0), Ok(SVME | LME));
        assert_eq!(write_efer(SVME | LME | LMA, LME | 1, PAGING), Ok(SVME | LME | LMA | 1));
        assert_eq!(write_efer(SVME | LME | LMA, 0, PAGING), Err(Refused));
        assert_eq!(write_efer(SVME, LME, PAGING), Err(Refused));
    }

    #[test]
    fn pat_takes_types_of_memory_alone() {
        assert_eq!(write_pat(PAT), Ok(PAT));
        for kind in [2, 3, 8, 0xff] {
            assert_eq!(write_pat(PAT & !0xff00 | kind << 8), Err(Refused));
        }
    }
}
