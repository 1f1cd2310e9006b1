//! What one processor says of itself, and what all processors of a machine have in common.
//!
//! The first processor puts together what each of them has said, one after the other. So a processor that was given up
//! changes nothing, however late it goes on.

use crate::controls::Ids;
use crate::errata::Errata;
use crate::id;
use crate::kinds::Kinds;
use crate::sysreg::{self, SysReg};

/// The ID registers that a guest sees something of.
pub const REGISTERS: [SysReg; 9] = [
    sysreg::ID_AA64PFR0_EL1,
    sysreg::ID_AA64PFR1_EL1,
    sysreg::ID_AA64DFR0_EL1,
    sysreg::ID_AA64ISAR0_EL1,
    sysreg::ID_AA64ISAR1_EL1,
    sysreg::ID_AA64ISAR2_EL1,
    sysreg::ID_AA64MMFR0_EL1,
    sysreg::ID_AA64MMFR1_EL1,
    sysreg::ID_AA64MMFR2_EL1,
];

/// What one processor says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Processor {
    /// Its [`REGISTERS`].
    pub ids: [u64; REGISTERS.len()],
    /// Its `MIDR_EL1`.
    pub midr: u64,
}

impl Processor {
    fn register(&self, register: SysReg) -> u64 {
        let place = REGISTERS.iter().position(|each| *each == register);
        place.map_or(0, |place| self.ids[place])
    }

    /// The kinds of registers that it has, whatever the others are.
    pub fn kinds(&self) -> Kinds {
        Kinds::of(Ids {
            pfr0: self.register(sysreg::ID_AA64PFR0_EL1),
            pfr1: self.register(sysreg::ID_AA64PFR1_EL1),
            mmfr0: self.register(sysreg::ID_AA64MMFR0_EL1),
            ..Ids::default()
        })
    }
}

/// What some processors have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Common {
    /// Of each of the [`REGISTERS`] the features that all of them have.
    pub ids: [u64; REGISTERS.len()],
    /// The errata that one of them has.
    pub errata: Errata,
    /// The kinds of registers that one of them has.
    pub kinds: Kinds,
}

impl Common {
    /// What one processor has.
    pub fn of(processor: &Processor) -> Self {
        Self { ids: processor.ids, errata: Errata::of(processor.midr), kinds: processor.kinds() }
    }

    /// What these and another have.
    #[must_use]
    pub fn with(&self, other: &Processor) -> Self {
        let other = Self::of(other);
        let mut ids = self.ids;
        for ((register, common), here) in REGISTERS.iter().zip(&mut ids).zip(other.ids) {
            *common = id::common(*register, *common, here);
        }
        Self { ids, errata: self.errata.with(other.errata), kinds: self.kinds.with(other.kinds) }
    }

    /// What all of them have of an ID register that guests see something of; 0 for others.
    pub fn register(&self, register: SysReg) -> u64 {
        let place = REGISTERS.iter().position(|each| *each == register);
        place.map_or(0, |place| self.ids[place])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A processor with these of its registers.
    fn processor(midr: u64, registers: &[(SysReg, u64)]) -> Processor {
        let value = |register: SysReg| {
            registers.iter().find(|(of, _)| *of == register).map_or(0, |(_, value)| *value)
        };
        Processor { ids: REGISTERS.map(value), midr }
    }

    /// A little one: 6 breakpoints and 4 watchpoints, an erratum about TLBs.
    fn little() -> Processor {
        processor(0x411f_d050, &[(sysreg::ID_AA64DFR0_EL1, 0x1030_5106)])
    }

    /// A large one: 4 breakpoints and 2 watchpoints, RAS.
    fn large() -> Processor {
        let registers =
            [(sysreg::ID_AA64DFR0_EL1, 0x1010_3106), (sysreg::ID_AA64PFR0_EL1, 1 << 28)];
        processor(0x411f_d080, &registers)
    }

    #[test]
    fn a_machine_has_the_features_of_all_and_the_errata_and_registers_of_any() {
        for (first, second) in [(little(), large()), (large(), little())] {
            let common = Common::of(&first).with(&second);
            assert_eq!(common.register(sysreg::ID_AA64PFR0_EL1), 0);
            assert_eq!(common.register(sysreg::ID_AA64MMFR0_EL1), 0);
            assert!(common.errata.has(Errata::REPEATED_INVALIDATION));
            assert_eq!(common.kinds, Kinds::ERROR_RECORD);
        }
    }

    #[test]
    fn breakpoints_and_watchpoints_are_as_many_as_every_processor_has() {
        let common = Common::of(&little()).with(&large());
        let ids = Ids { dfr0: common.register(sysreg::ID_AA64DFR0_EL1), ..Ids::default() };
        assert_eq!((ids.breakpoints(), ids.watchpoints()), (4, 2));
    }
}
