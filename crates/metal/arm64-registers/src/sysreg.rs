//! System registers, by the numbers that an instruction names them with (DDI 0487, "System instruction class encoding
//! overview").

use core::fmt;

/// A system register, or a system instruction: `op0`, `op1`, `CRn`, `CRm`, `op2`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SysReg(u16);

impl SysReg {
    /// By its five numbers, of which the bits that do not fit are dropped.
    pub const fn new(op0: u8, op1: u8, crn: u8, crm: u8, op2: u8) -> Self {
        let (op0, op1, crn, crm, op2) =
            (op0 as u16, op1 as u16, crn as u16, crm as u16, op2 as u16);
        Self((op0 & 3) << 14 | (op1 & 7) << 11 | (crn & 15) << 7 | (crm & 15) << 3 | (op2 & 7))
    }

    /// Every register that `MRS` and `MSR` can name: 32,768.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..=u16::MAX >> 1).map(|number| Self(1 << 15 | number))
    }

    /// The word of `MSR` to it from general register `rt`.
    pub const fn write_word(self, rt: u8) -> u32 {
        let Self(number) = self;
        0xd500_0000 | (number as u32) << 5 | (rt & 31) as u32
    }

    /// The word of `MRS` from it to general register `rt`.
    pub const fn read_word(self, rt: u8) -> u32 {
        self.write_word(rt) | 1 << 21
    }

    /// `op0`: 1 for instructions, 2 for debug registers, 3 for the others.
    pub const fn op0(self) -> u8 {
        (self.0 >> 14) as u8
    }

    /// `op1`.
    pub const fn op1(self) -> u8 {
        (self.0 >> 11 & 7) as u8
    }

    /// `CRn`.
    pub const fn crn(self) -> u8 {
        (self.0 >> 7 & 15) as u8
    }

    /// `CRm`.
    pub const fn crm(self) -> u8 {
        (self.0 >> 3 & 15) as u8
    }

    /// `op2`.
    pub const fn op2(self) -> u8 {
        (self.0 & 7) as u8
    }

    /// Whether it is one of the ID registers that `HCR_EL2.TID3` traps: those that there are, and those that are
    /// reserved and read as zero.
    pub const fn is_id(self) -> bool {
        self.op0() == 3 && self.op1() == 0 && self.crn() == 0 && matches!(self.crm(), 1..=7)
    }
}

impl fmt::Debug for SysReg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(_) = self;
        write!(f, "S{}_{}_C{}_C{}_{}", self.op0(), self.op1(), self.crn(), self.crm(), self.op2())
    }
}

impl fmt::Display for SysReg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

macro_rules! registers {
    ($($name:ident $numbers:tt)*) => { $(
        #[doc = concat!("`", stringify!($name), "`.")]
        pub const $name: SysReg = SysReg::new $numbers;
    )* };
}

registers! {
    SCTLR_EL1(3, 0, 1, 0, 0)
    ACTLR_EL1(3, 0, 1, 0, 1)
    TTBR0_EL1(3, 0, 2, 0, 0)
    TTBR1_EL1(3, 0, 2, 0, 1)
    TCR_EL1(3, 0, 2, 0, 2)
    AFSR0_EL1(3, 0, 5, 1, 0)
    AFSR1_EL1(3, 0, 5, 1, 1)
    ESR_EL1(3, 0, 5, 2, 0)
    FAR_EL1(3, 0, 6, 0, 0)
    MAIR_EL1(3, 0, 10, 2, 0)
    AMAIR_EL1(3, 0, 10, 3, 0)
    CONTEXTIDR_EL1(3, 0, 13, 0, 1)
    MDSCR_EL1(2, 0, 0, 2, 2)
    OSLAR_EL1(2, 0, 1, 0, 4)
    OSLSR_EL1(2, 0, 1, 1, 4)
    OSDLR_EL1(2, 0, 1, 3, 4)
    DC_ISW(1, 0, 7, 6, 2)
    DC_CSW(1, 0, 7, 10, 2)
    DC_CISW(1, 0, 7, 14, 2)
    ICC_DIR_EL1(3, 0, 12, 11, 1)
    ICC_SGI1R_EL1(3, 0, 12, 11, 5)
    ICC_ASGI1R_EL1(3, 0, 12, 11, 6)
    ICC_SGI0R_EL1(3, 0, 12, 11, 7)
    ICC_SRE_EL1(3, 0, 12, 12, 5)
    CCSIDR_EL1(3, 1, 0, 0, 0)
    CLIDR_EL1(3, 1, 0, 0, 1)
    CCSIDR2_EL1(3, 1, 0, 0, 2)
    CSSELR_EL1(3, 2, 0, 0, 0)
    CTR_EL0(3, 3, 0, 0, 1)
    CNTP_TVAL_EL0(3, 3, 14, 2, 0)
    CNTP_CTL_EL0(3, 3, 14, 2, 1)
    CNTP_CVAL_EL0(3, 3, 14, 2, 2)
    ID_PFR0_EL1(3, 0, 0, 1, 0)
    ID_AA64PFR0_EL1(3, 0, 0, 4, 0)
    ID_AA64PFR1_EL1(3, 0, 0, 4, 1)
    ID_AA64ZFR0_EL1(3, 0, 0, 4, 4)
    ID_AA64SMFR0_EL1(3, 0, 0, 4, 5)
    ID_AA64DFR0_EL1(3, 0, 0, 5, 0)
    ID_AA64DFR1_EL1(3, 0, 0, 5, 1)
    ID_AA64ISAR0_EL1(3, 0, 0, 6, 0)
    ID_AA64ISAR1_EL1(3, 0, 0, 6, 1)
    ID_AA64ISAR2_EL1(3, 0, 0, 6, 2)
    ID_AA64MMFR0_EL1(3, 0, 0, 7, 0)
    ID_AA64MMFR1_EL1(3, 0, 0, 7, 1)
    ID_AA64MMFR2_EL1(3, 0, 0, 7, 2)
}
