//! What a processor says of its caches (`CTR_EL0`), and what holds on several processors.
//!
//! A loop over lines takes steps of the smallest line, and work on caches may be left out only where every processor says
//! so. Where processors differ, guests read what holds on all.

use mayfly_vm::platform::cache::InstructionCaches;

/// `CTR_EL0`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheType(u64);

/// `L1Ip`: what a virtual address says of the line of an instruction cache.
const POLICY_SHIFT: u32 = 14;
const BY_VIRTUAL_ADDRESS: u64 = 2;
const BY_PHYSICAL_ADDRESS: u64 = 3;
/// `IminLine`, `DminLine`, and `TminLine`, which has two bits more.
const INSTRUCTION_LINE_SHIFT: u32 = 0;
const DATA_LINE_SHIFT: u32 = 16;
const TAG_LINE_SHIFT: u32 = 32;
/// `ERG` and `CWG`, of which 0 says that nothing is known.
const RESERVATION_SHIFT: u32 = 20;
const WRITEBACK_SHIFT: u32 = 24;
/// `IDC` and `DIC`: what need not be done for a processor to see instructions that it has written.
const CLEAN_NOT_NEEDED: u64 = 1 << 28;
const INVALIDATE_NOT_NEEDED: u64 = 1 << 29;
const RES1: u64 = 1 << 31;

impl CacheType {
    /// As the register says.
    pub const fn new(ctr: u64) -> Self {
        Self(ctr)
    }

    /// As the register says.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Bytes of the smallest line of data caches.
    pub const fn data_line(self) -> u64 {
        4 << self.field(DATA_LINE_SHIFT)
    }

    /// Bytes of the smallest line of instruction caches.
    pub const fn instruction_line(self) -> u64 {
        4 << self.field(INSTRUCTION_LINE_SHIFT)
    }

    /// What instruction caches are.
    pub const fn instructions(self) -> InstructionCaches {
        match (self.0 & INVALIDATE_NOT_NEEDED, self.policy()) {
            (INVALIDATE_NOT_NEEDED, _) => InstructionCaches::Coherent,
            (_, BY_PHYSICAL_ADDRESS) => InstructionCaches::Physical,
            _ => InstructionCaches::Virtual,
        }
    }

    /// What holds on processors of both.
    #[must_use]
    pub fn in_common(self, other: Self) -> Self {
        let least =
            |shift: u32, mask: u64| (self.0 >> shift & mask).min(other.0 >> shift & mask) << shift;
        // A granule is as large as one of them has it; nothing is known of 0.
        let largest = |shift: u32| match (self.field(shift), other.field(shift)) {
            (0, _) | (_, 0) => 0,
            (first, second) => first.max(second) << shift,
        };
        let policy =
            if self.policy() == other.policy() { self.policy() } else { BY_VIRTUAL_ADDRESS };
        let not_needed = self.0 & other.0 & (CLEAN_NOT_NEEDED | INVALIDATE_NOT_NEEDED);
        Self(
            least(INSTRUCTION_LINE_SHIFT, 15)
                | policy << POLICY_SHIFT
                | least(DATA_LINE_SHIFT, 15)
                | largest(RESERVATION_SHIFT)
                | largest(WRITEBACK_SHIFT)
                | not_needed
                | RES1
                | least(TAG_LINE_SHIFT, 0x3f),
        )
    }

    const fn field(self, shift: u32) -> u64 {
        self.0 >> shift & 15
    }

    const fn policy(self) -> u64 {
        self.0 >> POLICY_SHIFT & 3
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A Cortex-A55 (lines of 64 bytes, VIPT, granules of 64 bytes), and one with lines of 32 and 128 bytes, PIPT, granules
    /// of 128 bytes, and coherent instruction caches.
    const LITTLE: CacheType = CacheType(0x8444_8004);
    const LARGE: CacheType = CacheType(0xb555_c003);

    #[test]
    fn loops_take_steps_of_the_smallest_line_of_all_processors() {
        let common = LITTLE.in_common(LARGE);
        assert_eq!((LITTLE.data_line(), LITTLE.instruction_line()), (64, 64));
        assert_eq!((LARGE.data_line(), LARGE.instruction_line()), (128, 32));
        assert_eq!((common.data_line(), common.instruction_line()), (64, 32));
    }

    #[test]
    fn work_is_left_out_where_no_processor_needs_it() {
        assert_eq!(LARGE.instructions(), InstructionCaches::Coherent);
        let common = LITTLE.in_common(LARGE);
        assert_eq!(common.instructions(), InstructionCaches::Virtual);
        assert_eq!(common.bits() >> 28 & 3, 0, "IDC, DIC");
        assert_eq!(LARGE.in_common(LARGE), LARGE);
        let physical = CacheType(0x8444_c004);
        assert_eq!(physical.in_common(LARGE).instructions(), InstructionCaches::Physical);
        assert_eq!(physical.in_common(LITTLE).instructions(), InstructionCaches::Virtual);
    }

    #[test]
    fn granules_are_the_largest_and_unknown_where_one_is_unknown() {
        assert_eq!(LITTLE.in_common(LARGE).bits() >> 20 & 0xff, 0x55, "ERG, CWG");
        let unknown = CacheType(0x8004_8004);
        assert_eq!(LARGE.in_common(unknown).bits() >> 20 & 0xff, 0);
    }

    proptest! {
        #[test]
        fn what_is_in_common_is_the_same_in_any_order(first: u64, second: u64, third: u64) {
            let [first, second, third] = [first, second, third].map(CacheType);
            let both = CacheType::in_common;
            prop_assert_eq!(both(first, second), both(second, first));
            prop_assert_eq!(both(both(first, second), third), both(first, both(second, third)));
            for each in [first, second] {
                let common = both(first, second);
                prop_assert!(common.data_line() <= each.data_line());
                prop_assert!(common.instruction_line() <= each.instruction_line());
                prop_assert_eq!(both(common, each), common, "one that was counted changes nothing");
            }
        }
    }
}
