//! By what EL2 keeps a guest from a register that it does not have, or that EL2 answers for.
//!
//! The rows of the table name their means, and a test holds each of them against the [`Controls`] of a processor that
//! has the feature of the row. So a register that the table hides, and that nothing traps, is found on any host.

use crate::controls::Controls;

/// A register of EL2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// `HCR_EL2`, while a guest runs.
    Hcr,
    /// `HCRX_EL2`.
    Hcrx,
    /// `MDCR_EL2`.
    Mdcr,
    /// `CPTR_EL2`.
    Cptr,
    /// `MPAM2_EL2`.
    Mpam2,
    /// `ICC_SRE_EL2`.
    IccSre,
}

/// What keeps a guest from a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// This bit of a register of EL2, which traps while it is set.
    Set(Control, u32),
    /// This bit, which traps while it is clear.
    Clear(Control, u32),
    /// Bits of the fine-grained traps whose names begin with n, which trap while they are clear: all are.
    Fine,
    /// The same of the second set.
    Fine2,
    /// `MPAM2_EL2.TIDR`, or `TRAP_MPAMIDR_EL1` of `MPAMHCR_EL2`, whichever there is.
    MpamId,
    /// `ICH_HCR_EL2.TDIR` of a vCPU that needs it: otherwise the virtual interface of the processor answers.
    VirtualInterface,
    /// A processor that has it is one of a machine with a `GICv5`, on which Mayfly does not run.
    NoMachine,
    /// The architecture: it is undefined at the EL1 of a processor with EL2, or outside of Debug or Secure state.
    Undefined,
}

impl Means {
    /// `MDCR_EL2.TPM`, `TDA`, `TDOSA`, `TDRA`: the PMU, debug registers.
    pub(crate) const TPM: Self = Self::Set(Control::Mdcr, 6);
    pub(crate) const TDA: Self = Self::Set(Control::Mdcr, 9);
    pub(crate) const TDOSA: Self = Self::Set(Control::Mdcr, 10);
    pub(crate) const TDRA: Self = Self::Set(Control::Mdcr, 11);
    /// `MDCR_EL2.E2PB`, `TPMS`, `EnSPM`, `TTRF`, `E2TB`, `EnSTEPOP`: profiling, system PMUs, the trace and its buffer,
    /// single steps of other instructions.
    pub(crate) const E2PB: Self = Self::Clear(Control::Mdcr, 12);
    pub(crate) const TPMS: Self = Self::Set(Control::Mdcr, 14);
    pub(crate) const ENSPM: Self = Self::Clear(Control::Mdcr, 15);
    pub(crate) const TTRF: Self = Self::Set(Control::Mdcr, 19);
    pub(crate) const E2TB: Self = Self::Clear(Control::Mdcr, 24);
    pub(crate) const ENSTEPOP: Self = Self::Clear(Control::Mdcr, 50);
    /// `CPTR_EL2.TZ`, `TSM`, `TTA`, `TAM`: SVE, SME, the trace unit, activity monitors.
    pub(crate) const TZ: Self = Self::Set(Control::Cptr, 8);
    pub(crate) const TSM: Self = Self::Set(Control::Cptr, 12);
    pub(crate) const TTA: Self = Self::Set(Control::Cptr, 20);
    pub(crate) const TAM: Self = Self::Set(Control::Cptr, 30);
    /// `HCR_EL2.FMO`, `IMO`, `TID3`, `TIDCP`, `TACR`, `TLOR`, `TERR`, `EnSCXT`, `ATA`, `TID5`.
    pub(crate) const FMO: Self = Self::Set(Control::Hcr, 3);
    pub(crate) const IMO: Self = Self::Set(Control::Hcr, 4);
    pub(crate) const TID3: Self = Self::Set(Control::Hcr, 18);
    pub(crate) const TIDCP: Self = Self::Set(Control::Hcr, 20);
    pub(crate) const TACR: Self = Self::Set(Control::Hcr, 21);
    pub(crate) const TLOR: Self = Self::Set(Control::Hcr, 35);
    pub(crate) const TERR: Self = Self::Set(Control::Hcr, 36);
    pub(crate) const ENSCXT: Self = Self::Clear(Control::Hcr, 53);
    pub(crate) const ATA: Self = Self::Clear(Control::Hcr, 56);
    pub(crate) const TID5: Self = Self::Set(Control::Hcr, 58);
    /// `HCRX_EL2.TALLINT`, `TCR2En`, `SCTLR2En`, `SRMASKEn`, `EnFPM`.
    pub(crate) const TALLINT: Self = Self::Set(Control::Hcrx, 6);
    pub(crate) const TCR2EN: Self = Self::Clear(Control::Hcrx, 14);
    pub(crate) const SCTLR2EN: Self = Self::Clear(Control::Hcrx, 15);
    pub(crate) const SRMASKEN: Self = Self::Clear(Control::Hcrx, 26);
    pub(crate) const ENFPM: Self = Self::Clear(Control::Hcrx, 27);
    /// `MPAM2_EL2.TRAPMPAM0EL1`, `TRAPMPAM1EL1`.
    pub(crate) const TRAPMPAM: Self = Self::Set(Control::Mpam2, 49);
    /// `ICC_SRE_EL2.Enable`.
    pub(crate) const ENABLE: Self = Self::Clear(Control::IccSre, 3);
    pub(crate) const FINE: Self = Self::Fine;
    pub(crate) const FINE2: Self = Self::Fine2;
    pub(crate) const MPAMID: Self = Self::MpamId;
    pub(crate) const TDIR: Self = Self::VirtualInterface;
    pub(crate) const GICV5: Self = Self::NoMachine;
    pub(crate) const UNDEFINED: Self = Self::Undefined;

    /// Whether a guest is kept from the register by these `controls`.
    pub fn holds(self, controls: &Controls) -> bool {
        match self {
            Self::Set(control, bit) => {
                controls.value(control).is_some_and(|value| value >> bit & 1 == 1)
            }
            Self::Clear(control, bit) => {
                controls.value(control).is_some_and(|value| value >> bit & 1 == 0)
            }
            Self::Fine => controls.fine == Some(crate::controls::FineTraps::HIDE),
            Self::Fine2 => controls.fine2 == Some(0),
            Self::MpamId => {
                let by_mpam2 = controls.mpam2.is_some_and(|value| value >> 58 & 1 == 1);
                by_mpam2 || controls.mpamhcr.is_some_and(|value| value >> 31 & 1 == 1)
            }
            Self::VirtualInterface | Self::NoMachine | Self::Undefined => true,
        }
    }
}

impl Controls {
    fn value(&self, control: Control) -> Option<u64> {
        match control {
            Control::Hcr => Some(self.hcr),
            Control::Hcrx => self.hcrx,
            Control::Mdcr => Some(self.mdcr),
            Control::Cptr => Some(self.cptr),
            Control::Mpam2 => self.mpam2,
            Control::IccSre => Some(self.icc_sre),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use crate::controls::Ids;
    use crate::table::{ROWS, Row, Treatment};

    const NONE: Ids = Ids { pfr0: 0, pfr1: 0, dfr0: 6, mmfr0: 0, mmfr1: 0, mpamidr: 0, pmcr: 0 };
    /// A processor of Armv8.8, or Armv8.9: that has `HCRX_EL2`, and the first set of fine-grained traps, or both.
    const V8_8: Ids = Ids { mmfr0: 1 << 56, mmfr1: 1 << 40, ..NONE };
    const V8_9: Ids = Ids { mmfr0: 2 << 56, ..V8_8 };

    /// Processors that have `feature`, each as little else as the architecture allows (DDI 0487, "A2", the features that
    /// each one needs).
    fn processors(feature: &str) -> Vec<Ids> {
        let pmu = Ids { dfr0: 6 | 1 << 8, pmcr: 6 << 11, ..NONE };
        let later_pmu = Ids { mmfr0: V8_9.mmfr0, mmfr1: V8_9.mmfr1, ..pmu };
        let all: &[Ids] = match feature {
            "ARMv8.0"
            | "ARMv8.0, in Debug state"
            | "the implementation"
            | "Secure EL1"
            | "FEAT_GICv3"
            | "FEAT_GCIE"
            | "FEAT_DoubleLock" => &[NONE, V8_9],
            "FEAT_PMUv3" | "FEAT_PMUv3p4" => &[pmu, later_pmu],
            "FEAT_PMUv3_SS"
            | "FEAT_PMUv3_ICNTR"
            | "FEAT_PMUv3p9"
            | "FEAT_PMUv3p9, FEAT_EBEP"
            | "FEAT_SEBEP" => &[later_pmu],
            "FEAT_ETE" => &[Ids { dfr0: 6 | 1 << 4, ..NONE }],
            "FEAT_SPE" => &[Ids { dfr0: 6 | 1 << 32, ..NONE }],
            "FEAT_TRF" => &[Ids { dfr0: 6 | 1 << 40, ..NONE }],
            "FEAT_TRBE" => &[Ids { dfr0: 6 | 1 << 44, ..NONE }],
            "FEAT_SVE" => &[Ids { pfr0: 1 << 32, ..NONE }],
            "FEAT_RAS" => &[Ids { pfr0: 1 << 28, ..NONE }, Ids { pfr0: 2 << 28, ..V8_9 }],
            "FEAT_AMUv1" => &[Ids { pfr0: 1 << 44, ..NONE }],
            "FEAT_CSV2_2" => &[Ids { pfr0: 2 << 56, ..NONE }],
            "FEAT_MPAM" => &[
                Ids { pfr0: 1 << 40, mpamidr: 1 << 58, ..NONE },
                Ids { pfr0: 1 << 40, mpamidr: 1 << 17, ..NONE },
                Ids { pfr1: 1 << 16, mpamidr: 1 << 58, ..NONE },
            ],
            "FEAT_MTE2" => &[Ids { pfr1: 2 << 8, ..NONE }, Ids { pfr1: 3 << 8, ..V8_8 }],
            "FEAT_SME" => &[Ids { pfr1: 1 << 24, ..V8_8 }],
            "FEAT_NMI" => &[Ids { pfr1: 1 << 36, ..V8_8 }],
            "FEAT_LOR" => &[Ids { mmfr1: 1 << 16, ..NONE }],
            "FEAT_BRBE" | "FEAT_GCS" | "FEAT_S1PIE" | "FEAT_S1POE" | "FEAT_S2POE" | "FEAT_AIE"
            | "FEAT_THE" | "FEAT_LS64_ACCDATA" | "FEAT_SCTLR2" | "FEAT_TCR2" | "FEAT_FPMR"
            | "FEAT_SRMASK" | "FEAT_SPMU" | "FEAT_STEP2" => &[V8_8, V8_9],
            "FEAT_Debugv8p9" | "FEAT_ITE" | "FEAT_PFAR" => &[V8_9],
            _ => &[],
        };
        all.to_vec()
    }

    fn comes_out(row: &Row) -> bool {
        !matches!(row.treatment, Treatment::Switched | Treatment::Constant)
    }

    #[test]
    fn a_register_that_is_hidden_or_trapped_names_what_hides_or_traps_it() {
        for row in ROWS {
            assert_eq!(row.means.is_some(), comes_out(row), "{}", row.name);
        }
    }

    #[test]
    fn what_a_row_names_is_set_so_on_each_processor_that_has_its_feature() {
        for row in ROWS.iter().filter(|row| comes_out(row)) {
            let processors = processors(row.feature);
            assert!(!processors.is_empty(), "no ID register is known to say {}", row.feature);
            for ids in processors {
                let controls = Controls::of(ids);
                assert!(
                    row.means.is_some_and(|means| means.holds(&controls)),
                    "{} of {}: {:?} with {ids:x?}",
                    row.name,
                    row.feature,
                    row.means,
                );
            }
        }
    }
}
