//! Errata of processors that EL2 has to do something about, by `MIDR_EL1` (DDI 0487, at that register), and where it is
//! done. The numbers and revisions are those of Arm's errata notices, as Linux lists them
//! (`arch/arm64/kernel/cpu_errata.c`).
//!
//! Mayfly has not run on any of these processors: QEMU has none of the errata.

/// What is to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Errata(u8);

impl Errata {
    /// No erratum.
    pub const NONE: Self = Self(0);

    /// A TLB invalidation of another processor may be complete before accesses that used the translation are. It is made
    /// twice, in `tlb`: 1286807 of Cortex-A76, 2441007 of Cortex-A55, 2441009 of Cortex-A510.
    pub const REPEATED_INVALIDATION: Self = Self(1);

    /// A load of a device beside a read of `PAR_EL1` may stop the processor. Barriers are between them, in `optional`, `context`
    /// and `guest`: 1508412 of Cortex-A77. (A guest without the workaround can still stop its processor.)
    pub const PAR_BARRIERS: Self = Self(2);

    /// A stage 2 fault may be reported in place of one of stage 1. The address is translated by stage 1 first, in
    /// `guest`: 834220 of Cortex-A57.
    pub const STAGE1_FIRST: Self = Self(4);

    /// The processor may walk from `VTTBR_EL2` out of guests, by registers of which some are another vCPU's already. It
    /// names the empty root meanwhile, in `guest` and `tlb`: 1530923 of Cortex-A55, 1319537 of A57, 1319367 of A72,
    /// 1165522 of A76, and Neoverse-N1, which is made of the last.
    pub const WALKS_OUT_OF_GUESTS: Self = Self(8);

    /// Those of the processor whose `MIDR_EL1` is `midr`.
    pub const fn of(midr: u64) -> Self {
        /// Any revision.
        const ANY: u64 = 0xff;
        const ARM: u64 = 0x41;
        if midr >> 24 & 0xff != ARM {
            return Self::NONE;
        }
        let (part, revision) = (midr >> 4 & 0xfff, (midr >> 20 & 0xf) << 4 | (midr & 0xf));
        // Each up to a revision: 0x12 is r1p2.
        let table = [
            (0xd05, ANY, Self::REPEATED_INVALIDATION),
            (0xd05, ANY, Self::WALKS_OUT_OF_GUESTS),
            (0xd07, 0x12, Self::STAGE1_FIRST),
            (0xd07, ANY, Self::WALKS_OUT_OF_GUESTS),
            (0xd08, ANY, Self::WALKS_OUT_OF_GUESTS),
            (0xd0b, 0x30, Self::REPEATED_INVALIDATION),
            (0xd0b, ANY, Self::WALKS_OUT_OF_GUESTS),
            (0xd0c, ANY, Self::WALKS_OUT_OF_GUESTS),
            (0xd0d, 0x10, Self::PAR_BARRIERS),
            (0xd46, 0x11, Self::REPEATED_INVALIDATION),
        ];
        let (mut all, mut row) = (Self::NONE, 0);
        while row < table.len() {
            let (of, last, erratum) = table[row];
            if of == part && revision <= last {
                all = all.with(erratum);
            }
            row += 1;
        }
        all
    }

    /// These, and `others`.
    #[must_use]
    pub const fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Whether one of `others` is among these.
    pub const fn has(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    /// As a number, for [`Errata::from_bits`].
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Those that [`Errata::bits`] has said.
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_erratum_is_named_where_it_is_handled() {
        let tlb = include_str!("bare/tlb.rs");
        let guest = include_str!("bare/guest.rs");
        let places: [(&str, &[&str]); 4] = [
            (tlb, &["1286807", "2441007", "2441009", "1530923", "1319537", "1319367", "1165522"]),
            (guest, &["834220", "1508412", "1530923", "1319537", "1319367", "1165522"]),
            (include_str!("bare/context.rs"), &["1508412"]),
            (include_str!("bare/optional.rs"), &["1508412"]),
        ];
        for (source, numbers) in places {
            for number in numbers {
                assert!(source.contains(number), "{number}");
            }
        }
    }

    const fn midr(implementer: u64, part: u64, variant: u64, revision: u64) -> u64 {
        implementer << 24 | variant << 20 | 0xf << 16 | part << 4 | revision
    }

    fn arm(part: u64, variant: u64, revision: u64) -> Errata {
        Errata::of(midr(0x41, part, variant, revision))
    }

    #[test]
    fn invalidations_are_repeated_on_a_cortex_a76_up_to_r3p0_and_on_every_a55() {
        let repeated = |part, variant, revision| {
            arm(part, variant, revision).has(Errata::REPEATED_INVALIDATION)
        };
        assert!(repeated(0xd0b, 0, 0) && repeated(0xd0b, 2, 1) && repeated(0xd0b, 3, 0));
        assert!(!repeated(0xd0b, 3, 1) && !repeated(0xd0b, 4, 0));
        assert!(repeated(0xd05, 2, 0));
        assert!(repeated(0xd46, 1, 1) && !repeated(0xd46, 1, 2));
    }

    #[test]
    fn par_has_barriers_on_a_cortex_a77_up_to_r1p0() {
        let barriers = |variant, revision| arm(0xd0d, variant, revision).has(Errata::PAR_BARRIERS);
        assert!(barriers(0, 0) && barriers(1, 0));
        assert!(!barriers(1, 1) && !barriers(2, 0));
    }

    #[test]
    fn stage_1_is_asked_first_on_a_cortex_a57_up_to_r1p2() {
        let first = |variant, revision| arm(0xd07, variant, revision).has(Errata::STAGE1_FIRST);
        assert!(first(0, 0) && first(1, 2));
        assert!(!first(1, 3));
    }

    #[test]
    fn five_processors_walk_out_of_guests() {
        for part in 0..0x1000 {
            let walks = arm(part, 1, 0).has(Errata::WALKS_OUT_OF_GUESTS);
            assert_eq!(walks, [0xd05, 0xd07, 0xd08, 0xd0b, 0xd0c].contains(&part), "{part:#x}");
        }
    }

    proptest! {
        #[test]
        fn a_processor_of_another_maker_has_none_of_them(
            implementer in (0..0x100_u64).prop_filter("Arm's", |maker| *maker != 0x41),
            low: u32,
        ) {
            let midr = u64::from(low) & 0xff_ffff | implementer << 24;
            prop_assert_eq!(Errata::of(midr), Errata::NONE);
        }

        #[test]
        fn a_machine_has_what_any_of_its_processors_has(first: u32, second: u32) {
            let (first, second) = (Errata::of(first.into()), Errata::of(second.into()));
            let both = first.with(second);
            for erratum in [1, 2, 4, 8].map(Errata::from_bits) {
                prop_assert_eq!(both.has(erratum), first.has(erratum) || second.has(erratum));
            }
            prop_assert_eq!(Errata::from_bits(both.bits()), both);
        }
    }
}
