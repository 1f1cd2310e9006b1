//! What one processor says of itself, and what all processors of a machine have in common.
//!
//! The first processor puts together what each of them has said, one after the other. So a processor that was given up
//! changes nothing, however late it goes on.

use crate::cache_type::CacheType;
use crate::controls::{Controls, Ids};
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
    /// Its `CTR_EL0`.
    pub ctr: CacheType,
}

impl Processor {
    fn register(&self, register: SysReg) -> u64 {
        let place = REGISTERS.iter().position(|each| *each == register);
        place.map_or(0, |place| self.ids[place])
    }

    /// Those by which registers of EL2 are set, as far as they are among these.
    fn ids(&self) -> Ids {
        Ids {
            pfr0: self.register(sysreg::ID_AA64PFR0_EL1),
            pfr1: self.register(sysreg::ID_AA64PFR1_EL1),
            dfr0: self.register(sysreg::ID_AA64DFR0_EL1),
            mmfr0: self.register(sysreg::ID_AA64MMFR0_EL1),
            mmfr1: self.register(sysreg::ID_AA64MMFR1_EL1),
            ..Ids::default()
        }
    }
}

/// What some processors have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Common {
    /// Of each of the [`REGISTERS`] the features that all of them have.
    pub ids: [u64; REGISTERS.len()],
    /// The errata that one of them has.
    pub errata: Errata,
    /// The kinds of registers that one of them has, and whether they differ in them.
    pub kinds: Kinds,
    /// What holds of the caches of all.
    pub caches: CacheType,
    /// `HCR_EL2` of guests ([`Controls::hcr`]), with the traps that any of them needs.
    pub hcr: u64,
}

/// `HCR_EL2.TID2`: what a processor says of its caches.
const TID2: u64 = 1 << 17;

impl Common {
    /// What one processor has.
    pub fn of(processor: &Processor) -> Self {
        Self {
            ids: processor.ids,
            errata: Errata::of(processor.midr),
            kinds: Kinds::of(processor.ids()),
            caches: processor.ctr,
            hcr: Controls::of(processor.ids()).hcr,
        }
    }

    /// What these and another have.
    #[must_use]
    pub fn with(&self, other: &Processor) -> Self {
        let other = Self::of(other);
        let mut ids = self.ids;
        for ((register, common), here) in REGISTERS.iter().zip(&mut ids).zip(other.ids) {
            *common = id::common(*register, *common, here);
        }
        Self {
            ids,
            errata: self.errata.with(other.errata),
            kinds: self.kinds.beside(other.kinds),
            caches: self.caches.in_common(other.caches),
            hcr: self.hcr | other.hcr | if self.caches == other.caches { 0 } else { TID2 },
        }
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
        Processor { ids: REGISTERS.map(value), midr, ctr: CacheType::new(0x8444_c004) }
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
            assert_eq!(common.kinds, Kinds::ERROR_RECORD.with(Kinds::DIFFERENT));
        }
    }

    #[test]
    fn what_a_guest_reads_of_caches_comes_from_el2_where_processors_differ() {
        let other = CacheType::new(0x8444_8003);
        let (first, second) = (little(), Processor { ctr: other, ..large() });
        let common = Common::of(&first).with(&large());
        assert_eq!((common.hcr & TID2, common.caches), (0, first.ctr), "all say the same");
        for common in [common.with(&second), Common::of(&second).with(&first).with(&large())] {
            assert_eq!((common.hcr & TID2, common.caches), (TID2, other.in_common(first.ctr)));
        }
    }

    #[test]
    fn guests_run_with_the_traps_that_any_processor_needs() {
        let tags = processor(0, &[(sysreg::ID_AA64PFR1_EL1, 2 << 8)]);
        for (first, second) in [(little(), tags), (tags, little())] {
            assert_eq!(Common::of(&first).with(&second).hcr >> 58, 1, "TID5");
        }
    }

    #[test]
    fn breakpoints_and_watchpoints_are_as_many_as_every_processor_has() {
        let common = Common::of(&little()).with(&large());
        let ids = Ids { dfr0: common.register(sysreg::ID_AA64DFR0_EL1), ..Ids::default() };
        assert_eq!((ids.breakpoints(), ids.watchpoints()), (4, 2));
    }
}
