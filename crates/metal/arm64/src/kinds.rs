//! The kinds of registers that not every vCPU has, or uses, and which of them are switched on which processor.
//!
//! The processors of one machine may differ. A vCPU has what *any* of them has, and is switched what *the one that it is
//! on* has: a register that this processor does not have is undefined there, and what the vCPU has in it waits for a
//! processor that has it. So no vCPU meets what another one has left in such a register, wherever both have been.

use crate::controls::Ids;

/// Some kinds of registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds(u32);

impl Kinds {
    /// None.
    pub const NONE: Self = Self(0);
    /// The keys of pointer authentication: of a vCPU that has used them.
    pub const KEYS: Self = Self(1);
    /// The record of deferred errors (`VDISR_EL2`): on each processor that has the RAS extension.
    pub const ERROR_RECORD: Self = Self(1 << 1);
    /// `TPIDR2_EL0`: on each processor that has SME, and no trap for it.
    pub const TPIDR2: Self = Self(1 << 2);
    /// Breakpoints and watchpoints: of a vCPU that has enabled one.
    pub const BREAKPOINTS: Self = Self(1 << 3);
    /// The physical timer: of a vCPU that has used it.
    pub const PHYSICAL_TIMER: Self = Self(1 << 4);
    /// No registers, but barriers about reads of `PAR_EL1`: where any processor needs them.
    pub const BARRIERS: Self = Self(1 << 5);
    /// Performance counters: of a vCPU that has enabled one.
    pub const COUNTERS: Self = Self(1 << 6);
    /// No registers: processors of the machine differ in those of `Kinds::OF_ONE_PROCESSOR`.
    pub const DIFFERENT: Self = Self(1 << 7);

    /// Those that a processor has or has not, whatever the others are. Each vCPU has them where a processor does.
    const OF_ONE_PROCESSOR: Self = Self::ERROR_RECORD.with(Self::TPIDR2);

    /// Those that the processor with these ID registers has, whatever the others are.
    pub const fn of(ids: Ids) -> Self {
        let mut kinds = Self::NONE;
        if ids.has_ras() {
            kinds = kinds.with(Self::ERROR_RECORD);
        }
        if ids.shows_tpidr2() {
            kinds = kinds.with(Self::TPIDR2);
        }
        kinds
    }

    /// Of these, which are a vCPU's, those that are switched on a processor that has `here`.
    #[must_use]
    pub const fn on(self, here: Self) -> Self {
        Self(self.0 & (here.0 | !Self::OF_ONE_PROCESSOR.0))
    }

    /// What processors have that have these, and one that has `other`, and whether they differ in it.
    #[must_use]
    pub const fn beside(self, other: Self) -> Self {
        let each = self.among(Self::OF_ONE_PROCESSOR);
        let are_alike = each.0 == other.among(Self::OF_ONE_PROCESSOR).0;
        let both = self.with(other);
        if are_alike { both } else { both.with(Self::DIFFERENT) }
    }

    /// Whether these are no more than each vCPU has, on processors that are alike.
    pub const fn are_of_each(self) -> bool {
        self.0 & !Self::OF_ONE_PROCESSOR.0 == 0
    }

    /// These, and `others`.
    #[must_use]
    pub const fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Those of these that are among `others`.
    #[must_use]
    pub const fn among(self, others: Self) -> Self {
        Self(self.0 & others.0)
    }

    /// Whether one of `others` is among these.
    pub const fn has(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// As a number, for [`Kinds::from_bits`].
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Those that [`Kinds::bits`] has said.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Cortex-A53 and a Cortex-A76, of which the second has the RAS extension.
    const PLAIN: Ids = Ids { pfr0: 0x2222, ..NOTHING };
    const WITH_RAS: Ids = Ids { pfr0: 1 << 28 | 0x1111, ..NOTHING };
    /// SME, with the fine-grained traps and without.
    const WITH_SME: Ids = Ids { pfr1: 1 << 24, ..NOTHING };
    const WITH_SME_TRAPPED: Ids = Ids { pfr1: 1 << 24, mmfr0: 1 << 56, ..NOTHING };
    const NOTHING: Ids = Ids { pfr0: 0, pfr1: 0, dfr0: 0, mmfr0: 0, mmfr1: 0, mpamidr: 0, pmcr: 0 };

    /// What a vCPU has on a machine of two processors, wherever it was made.
    fn vcpu(first: Ids, second: Ids) -> Kinds {
        Kinds::of(first).beside(Kinds::of(second))
    }

    #[test]
    fn the_error_record_is_switched_on_each_processor_that_has_it_and_touched_on_no_other() {
        for (first, second) in [(PLAIN, WITH_RAS), (WITH_RAS, PLAIN)] {
            let vcpu = vcpu(first, second);
            assert!(vcpu.on(Kinds::of(WITH_RAS)).has(Kinds::ERROR_RECORD));
            assert!(!vcpu.on(Kinds::of(PLAIN)).has(Kinds::ERROR_RECORD));
        }
        assert_eq!(vcpu(PLAIN, PLAIN), Kinds::NONE, "a switch has nothing to ask");
    }

    #[test]
    fn tpidr2_is_switched_on_each_processor_whose_guests_reach_it_and_touched_on_no_other() {
        for without in [PLAIN, WITH_SME_TRAPPED] {
            let vcpu = vcpu(without, WITH_SME);
            assert!(vcpu.on(Kinds::of(WITH_SME)).has(Kinds::TPIDR2));
            assert!(!vcpu.on(Kinds::of(without)).has(Kinds::TPIDR2));
        }
    }

    #[test]
    fn what_does_not_depend_on_the_processor_is_switched_on_all() {
        let own = Kinds::KEYS.with(Kinds::BREAKPOINTS).with(Kinds::PHYSICAL_TIMER);
        let own = own.with(Kinds::BARRIERS);
        assert_eq!(own.on(Kinds::NONE), own);
        let differ = own.with(Kinds::DIFFERENT);
        assert_eq!(own.with(vcpu(PLAIN, WITH_RAS)).on(Kinds::of(PLAIN)), differ);
    }

    #[test]
    fn what_each_vcpu_has_is_told_from_more_and_from_that_of_processors_that_differ() {
        let all = Ids { pfr0: 1 << 28, ..WITH_SME };
        for ids in [PLAIN, WITH_RAS, WITH_SME, all] {
            assert!(vcpu(ids, ids).are_of_each(), "{ids:?}");
            assert!(!vcpu(ids, ids).with(Kinds::KEYS).are_of_each(), "{ids:?}");
        }
        for (first, second) in [(PLAIN, WITH_RAS), (WITH_SME, PLAIN), (WITH_RAS, all)] {
            let both = vcpu(first, second);
            assert!(both.has(Kinds::DIFFERENT) && !both.are_of_each());
            assert_eq!(both.beside(Kinds::of(second)), both, "with a third one");
            assert_eq!(vcpu(second, first), both);
        }
    }

    #[test]
    fn a_processor_has_nothing_that_its_id_registers_do_not_say() {
        assert_eq!(Kinds::of(NOTHING), Kinds::NONE);
        let both = Ids { pfr0: 1 << 28, ..WITH_SME };
        assert_eq!(Kinds::of(both), Kinds::ERROR_RECORD.with(Kinds::TPIDR2));
        assert_eq!(Kinds::from_bits(Kinds::of(both).bits()), Kinds::of(both));
    }
}
