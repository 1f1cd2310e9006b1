//! The values of the registers of EL2 that say what a guest reaches of its processor, as a function of the ID
//! registers.
//!
//! Firmware leaves these registers as it likes, and most are unknown after a reset. So each register that the processor
//! has is written once, before the first guest. A register of a feature that the processor does not have is undefined,
//! and is [`None`] here.
//!
//! What a bit traps is of three kinds. Bits of features that all processors have are always set. Bits of a later
//! feature are set where it is present, and are reserved otherwise. Bits of the fine-grained traps whose names begin
//! with n, and those of `HCRX_EL2`, trap while they are clear: so zero hides features that are not known yet, too.

/// The ID registers that say so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ids {
    /// `ID_AA64PFR0_EL1`.
    pub pfr0: u64,
    /// `ID_AA64PFR1_EL1`.
    pub pfr1: u64,
    /// `ID_AA64DFR0_EL1`.
    pub dfr0: u64,
    /// `ID_AA64MMFR0_EL1`.
    pub mmfr0: u64,
    /// `ID_AA64MMFR1_EL1`.
    pub mmfr1: u64,
    /// `MPAMIDR_EL1`, where there is MPAM.
    pub mpamidr: u64,
    /// `PMCR_EL0`, where there is a PMU.
    pub pmcr: u64,
}

impl Ids {
    /// It has the trace unit's registers as system registers (`TraceVer`).
    const fn has_trace(self) -> bool {
        field(self.dfr0, 4) != 0
    }

    /// It has the activity monitors.
    const fn has_monitors(self) -> bool {
        field(self.pfr0, 44) != 0
    }

    /// It has a PMU that the architecture describes.
    pub const fn has_pmu(self) -> bool {
        !matches!(field(self.dfr0, 8), 0 | 15)
    }

    /// It has the statistical profiling extension.
    const fn has_profiling(self) -> bool {
        field(self.dfr0, 32) != 0
    }

    /// It has filters of the trace (`FEAT_TRF`).
    const fn has_trace_filter(self) -> bool {
        field(self.dfr0, 40) != 0
    }

    /// It has non-maskable interrupts, and with them `PSTATE.ALLINT`.
    const fn has_nmi(self) -> bool {
        field(self.pfr1, 36) != 0
    }

    /// It has MPAM, of any version.
    pub const fn has_mpam(self) -> bool {
        field(self.pfr0, 40) != 0 || field(self.pfr1, 16) != 0
    }

    /// It has `HCRX_EL2`.
    const fn has_hcrx(self) -> bool {
        field(self.mmfr1, 40) != 0
    }

    /// It has the fine-grained traps: 1, or 2 with the second set.
    const fn fine_grained_traps(self) -> u64 {
        field(self.mmfr0, 56)
    }

    /// It has the RAS extension, and with it `ESB`, `VDISR_EL2` and `VSESR_EL2`.
    pub const fn has_ras(self) -> bool {
        field(self.pfr0, 28) != 0
    }

    /// It has tags in memory, and their registers (`FEAT_MTE2`).
    const fn has_tags(self) -> bool {
        field(self.pfr1, 8) >= 2
    }

    /// It has regions of limited ordering.
    const fn has_ordering_regions(self) -> bool {
        field(self.mmfr1, 16) != 0
    }

    /// A guest reaches `TPIDR2_EL0`: SME brings it, and only the fine-grained traps keep a guest from it.
    pub const fn shows_tpidr2(self) -> bool {
        field(self.pfr1, 24) != 0 && self.fine_grained_traps() == 0
    }

    /// Breakpoints, of which the last ones compare contexts.
    pub const fn breakpoints(self) -> usize {
        field(self.dfr0, 12) as usize + 1
    }

    /// Watchpoints.
    pub const fn watchpoints(self) -> usize {
        field(self.dfr0, 20) as usize + 1
    }
}

const fn field(register: u64, shift: u32) -> u64 {
    register >> shift & 15
}

const fn bit_if(condition: bool, number: u32) -> u64 {
    (condition as u64) << number
}

/// The values, with `HCR_EL2.E2H` clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Controls {
    /// `HCR_EL2` of guests, without what is one vCPU's or one machine's.
    pub hcr: u64,
    /// `CPTR_EL2`.
    pub cptr: u64,
    /// `MDCR_EL2`.
    pub mdcr: u64,
    /// `CNTHCTL_EL2`.
    pub cnthctl: u64,
    /// `ICC_SRE_EL2`.
    pub icc_sre: u64,
    /// `HCRX_EL2`.
    pub hcrx: Option<u64>,
    /// The fine-grained traps.
    pub fine: Option<FineTraps>,
    /// The fine-grained traps of the activity monitors, `HAFGRTR_EL2`.
    pub hafgrtr: Option<u64>,
    /// The second set of fine-grained traps: `HFGRTR2_EL2`, `HFGWTR2_EL2`, `HFGITR2_EL2`, `HDFGRTR2_EL2`,
    /// `HDFGWTR2_EL2`, which have one value.
    pub fine2: Option<u64>,
    /// `MPAM2_EL2`.
    pub mpam2: Option<u64>,
    /// `MPAMHCR_EL2`.
    pub mpamhcr: Option<u64>,
    /// `TRFCR_EL2`.
    pub trfcr: Option<u64>,
    /// `VSESR_EL2`, of all guests: an `SError` that a guest takes says only that it is the implementation's (`IDS`).
    pub vsesr: Option<u64>,
}

/// The fine-grained traps of `FEAT_FGT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FineTraps {
    /// `HFGRTR_EL2`.
    pub hfgrtr: u64,
    /// `HFGWTR_EL2`.
    pub hfgwtr: u64,
    /// `HFGITR_EL2`.
    pub hfgitr: u64,
    /// `HDFGRTR_EL2`.
    pub hdfgrtr: u64,
    /// `HDFGWTR_EL2`.
    pub hdfgwtr: u64,
}

impl Controls {
    /// `CNTHCTL_EL2` on every processor. EL1PCTEN: EL1 reads the physical counter. Its physical timer is trapped (EL1PCEN is
    /// clear).
    pub const CNTHCTL: u64 = 1;

    /// Those of a processor with these ID registers.
    pub const fn of(ids: Ids) -> Self {
        let has_fine = ids.fine_grained_traps() != 0;
        Self {
            hcr: hcr(ids),
            cptr: cptr(ids),
            mdcr: mdcr(ids),
            cnthctl: Self::CNTHCTL,
            // SRE, DFB, DIB: EL2 uses system registers. Enable is clear: EL1's `ICC_SRE_EL1` is trapped.
            icc_sre: 0b0111,
            // All of it hides something while it is clear, but TALLINT, which traps.
            hcrx: some_if(ids.has_hcrx(), bit_if(ids.has_nmi(), 6)),
            fine: if has_fine { Some(FineTraps::HIDE) } else { None },
            hafgrtr: some_if(has_fine && ids.has_monitors(), 0),
            fine2: some_if(ids.fine_grained_traps() >= 2, 0),
            // TRAPMPAM1EL1, TRAPMPAM0EL1; partition 0. `MPAMIDR_EL1` itself is trapped by TIDR here, or by
            // TRAP_MPAMIDR_EL1 in `MPAMHCR_EL2`, whichever there is.
            mpam2: some_if(ids.has_mpam(), 1 << 48 | 1 << 49 | ids.mpamidr & 1 << 58),
            mpamhcr: some_if(ids.has_mpam() && ids.mpamidr >> 17 & 1 == 1, 1 << 31),
            // Neither EL2 nor a program of it is traced; guests' times are virtual.
            trfcr: some_if(ids.has_trace_filter(), 0),
            vsesr: some_if(ids.has_ras(), 1 << 24),
        }
    }
}

impl FineTraps {
    /// Bits that trap while they are set are of registers that are switched, or that `HCR_EL2`, `CPTR_EL2` and
    /// `MDCR_EL2` trap. Those that trap while they are clear hide what these do not know of.
    pub(crate) const HIDE: Self = Self { hfgrtr: 0, hfgwtr: 0, hfgitr: 0, hdfgrtr: 0, hdfgwtr: 0 };
}

const fn some_if(condition: bool, value: u64) -> Option<u64> {
    if condition { Some(value) } else { None }
}

/// VM SWIO PTW FMO IMO AMO FB BSU(inner) TWI TID3 TSC TIDCP TACR TSW RW. Where there is RAS, TERR: records of errors.
/// TLOR: regions of limited ordering. TID5: `GMID_EL1`. What is clear hides as well: ATA, tags, and `EnSCXT`,
/// `SCXTNUM_EL0` and `SCXTNUM_EL1`.
///
/// TSW also with forced write-back: an operation by set and way takes lines out of the cache whose frames may be any
/// VM's.
const fn hcr(ids: Ids) -> u64 {
    0b11_1111
        | 1 << 9
        | 1 << 10
        | 1 << 13
        | 1 << 18
        | 1 << 19
        | 1 << 20
        | 1 << 21
        | 1 << 22
        | 1 << 31
        | bit_if(ids.has_ordering_regions(), 35)
        | bit_if(ids.has_ras(), 36)
        | bit_if(ids.has_tags(), 58)
}

/// RES1; TZ (8) and TSM (12), which trap SVE and SME, and are RES1 where there is none; TTA, the trace unit; TAM, the
/// activity monitors. Floating point is the guest's.
const fn cptr(ids: Ids) -> u64 {
    0x33ff | bit_if(ids.has_trace(), 20) | bit_if(ids.has_monitors(), 30)
}

/// TDA, TDOSA, TDRA: debug registers. With a PMU TPM, TPMCR, and in HPMN all of its counters, since fewer than one is
/// unpredictable. TPMS: profiling. TTRF: the trace filter. TDCC: the debugger's channel. What is clear hides as well:
/// E2PB and E2TB give the buffers of profiling and of the trace to EL2, `EnSPM` traps the system PMUs.
const fn mdcr(ids: Ids) -> u64 {
    let counters = ids.pmcr >> 11 & 0x1f;
    let pmu = if ids.has_pmu() { 1 << 6 | 1 << 5 | counters } else { 0 };
    1 << 9
        | 1 << 10
        | 1 << 11
        | pmu
        | bit_if(ids.has_profiling(), 14)
        | bit_if(ids.has_trace_filter(), 19)
        | bit_if(ids.fine_grained_traps() != 0, 27)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every field of four bits says 1: all features are there, in their first version.
    const EVERYTHING: Ids = Ids {
        pfr0: 0x1111_1111_1111_1111,
        pfr1: 0x1111_1111_1111_1111,
        dfr0: 0x1111_1111_1111_1116,
        mmfr0: 0x1111_1111_1111_1111,
        mmfr1: 0x1111_1111_1111_1111,
        mpamidr: 1 << 58 | 1 << 17,
        pmcr: 6 << 11,
    };
    /// A Cortex-A72: ARMv8.0, with a PMU, and with a trace unit that system registers do not reach.
    const CORTEX_A72: Ids = Ids {
        pfr0: 0x0000_0000_0100_2222,
        pfr1: 0,
        dfr0: 0x1030_5106,
        mmfr0: 0x1124,
        mmfr1: 0,
        mpamidr: 0,
        pmcr: 6 << 11,
    };

    fn bit(value: u64, number: u32) -> bool {
        value >> number & 1 == 1
    }

    #[test]
    fn a_guest_runs_with_what_its_processor_has_to_hide() {
        let common = 0x807c_263f;
        assert_eq!(Controls::of(CORTEX_A72).hcr, common);
        let tags = Ids { pfr1: 2 << 8, ..EVERYTHING };
        assert_eq!(Controls::of(tags).hcr, common | 1 << 35 | 1 << 36 | 1 << 58);
        assert_eq!(Controls::of(EVERYTHING).hcr >> 58, 0, "MTE without tags has no GMID_EL1");
    }

    #[test]
    fn where_everything_is_present_everything_is_trapped() {
        let controls = Controls::of(EVERYTHING);
        for (what, number) in [("SVE", 8), ("SME", 12), ("trace", 20), ("monitors", 30)] {
            assert!(bit(controls.cptr, number), "CPTR_EL2: {what}");
        }
        assert!(!bit(controls.cptr, 10), "floating point is the guest's");
        let debug = [("TPMCR", 5), ("TPM", 6), ("TDA", 9), ("TDOSA", 10), ("TDRA", 11)];
        let later = [("TPMS", 14), ("TTRF", 19), ("TDCC", 27)];
        for (what, number) in debug.into_iter().chain(later) {
            assert!(bit(controls.mdcr, number), "MDCR_EL2.{what}");
        }
        for (what, shift) in [("E2PB", 12), ("E2TB", 24)] {
            assert_eq!(controls.mdcr >> shift & 3, 0, "MDCR_EL2.{what}: the buffer is EL2's");
        }
        assert!(!bit(controls.mdcr, 8), "debug exceptions are the guest's (TDE)");
        assert_eq!(controls.hcrx, Some(1 << 6), "TALLINT, and nothing is enabled");
        assert_eq!(controls.fine, Some(FineTraps::HIDE));
        assert_eq!(controls.hafgrtr, Some(0));
        assert_eq!(controls.fine2, None);
        assert_eq!(controls.mpam2, Some(0x0403_0000_0000_0000), "traps, and partition 0");
        assert_eq!(controls.mpamhcr, Some(1 << 31));
        assert_eq!(controls.trfcr, Some(0));
        assert_eq!(controls.vsesr, Some(1 << 24));
    }

    #[test]
    fn the_second_set_of_fine_traps_is_written_where_it_is() {
        let ids = Ids { mmfr0: 2 << 56, ..EVERYTHING };
        assert_eq!(Controls::of(ids).fine2, Some(0));
        assert!(Controls::of(ids).fine.is_some());
    }

    #[test]
    fn an_old_processor_has_none_of_the_later_registers_written() {
        let controls = Controls::of(CORTEX_A72);
        assert_eq!(controls.cptr, 0x33ff);
        assert_eq!(controls.mdcr, 0xe66);
        assert_eq!((controls.hcrx, controls.fine, controls.fine2), (None, None, None));
        assert_eq!((controls.mpam2, controls.trfcr, controls.vsesr), (None, None, None));
    }

    #[test]
    fn interrupts_are_reached_by_system_registers_whose_choice_is_not_the_guests() {
        for ids in [EVERYTHING, CORTEX_A72] {
            assert_eq!(Controls::of(ids).icc_sre, 7, "SRE, and no Enable");
            assert_eq!(Controls::of(ids).cnthctl, 1, "the counter, and no timer");
        }
    }

    #[test]
    fn mpam_of_version_0_1_is_found_in_its_own_field() {
        let ids = Ids { pfr0: 0, pfr1: 1 << 16, ..CORTEX_A72 };
        let controls = Controls::of(ids);
        assert_eq!(
            (controls.mpam2, controls.mpamhcr),
            (Some(3 << 48), None),
            "no TIDR, no MPAMHCR_EL2"
        );
    }

    #[test]
    fn tpidr2_is_shown_where_nothing_traps_it() {
        assert!(!EVERYTHING.shows_tpidr2());
        assert!(Ids { mmfr0: 0, ..EVERYTHING }.shows_tpidr2());
        assert!(!CORTEX_A72.shows_tpidr2());
    }

    #[test]
    fn a_cortex_a72_has_six_breakpoints_and_four_watchpoints() {
        assert_eq!((CORTEX_A72.breakpoints(), CORTEX_A72.watchpoints()), (6, 4));
    }

    proptest! {
        #[test]
        fn a_pmu_has_all_of_its_counters_below_hpmn(pfr0: u64, pfr1: u64, dfr0: u64, mmfr0: u64, mmfr1: u64, counters in 1_u64..32) {
            let ids = Ids { pfr0, pfr1, dfr0, mmfr0, mmfr1, pmcr: counters << 11, mpamidr: 0 };
            let controls = Controls::of(ids);
            // HPMN of zero is unpredictable where there is a PMU, and reserved where there is none.
            prop_assert_eq!(controls.mdcr & 0x1f, if ids.has_pmu() { counters } else { 0 });
            prop_assert_eq!(bit(controls.mdcr, 6), ids.has_pmu());
        }

        #[test]
        fn no_register_is_written_that_its_feature_does_not_bring(pfr0: u64, pfr1: u64, dfr0: u64, mmfr0: u64, mmfr1: u64) {
            let controls = Controls::of(Ids { pfr0, pfr1, dfr0, mmfr0, mmfr1, mpamidr: 0, pmcr: 0 });
            prop_assert_eq!(controls.hcrx.is_some(), mmfr1 >> 40 & 15 != 0);
            prop_assert_eq!(controls.fine.is_some(), mmfr0 >> 56 & 15 != 0);
            prop_assert_eq!(controls.fine2.is_some(), mmfr0 >> 56 & 15 >= 2);
            prop_assert_eq!(controls.hafgrtr.is_some(), mmfr0 >> 56 & 15 != 0 && pfr0 >> 44 & 15 != 0);
            prop_assert_eq!(controls.mpam2.is_some(), pfr0 >> 40 & 15 != 0 || pfr1 >> 16 & 15 != 0);
            prop_assert_eq!(controls.trfcr.is_some(), dfr0 >> 40 & 15 != 0);
            prop_assert_eq!(controls.vsesr.is_some(), pfr0 >> 28 & 15 != 0);
        }
    }
}
