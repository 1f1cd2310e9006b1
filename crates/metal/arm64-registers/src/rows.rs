//! The rows of the table: see [`table`](crate::table).

use crate::means::Means;
use crate::sysreg::SysReg;
use crate::table::Row;
use crate::table::Treatment::{Constant, Hidden, Ignores, Reads, Switched, Trapped};

/// `NAME FEATURE TREATMENT MEANS (op0, op1, CRn, CRm, op2)`, for several registers `to` the numbers of the last. A row
/// whose registers guests reach has no means.
macro_rules! rows {
    ($($name:literal $feature:literal $treatment:tt $($means:ident)? ($($first:literal),*) $(to ($($last:literal),*))?;)*) => {
        &[$(Row::span(
            $name,
            $feature,
            rows!(@as $treatment),
            rows!(@by $($means)?),
            SysReg::new($($first),*),
            rows!(@last ($($first),*) $(($($last),*))?),
        )),*]
    };
    (@as ($kind:ident $value:literal)) => { $kind($value) };
    (@as $kind:ident) => { $kind };
    (@by) => { None };
    (@by $means:ident) => { Some(Means::$means) };
    (@last $one:tt) => { SysReg::new $one };
    (@last $first:tt $last:tt) => { SysReg::new $last };
}

/// Each register of EL1 and EL0.
pub const ROWS: &[Row] = rows! {
    // Debug, by `MDCR_EL2.TDA`, `TDOSA`, `TDRA`. The debugger's channel, its claims and its locks are nobody's.
    "OSDTRRX_EL1" "ARMv8.0" (Ignores 0) TDA (2, 0, 0, 0, 2);
    "DBGBVR<n>_EL1" "ARMv8.0" Trapped TDA (2, 0, 0, 0, 4) to (2, 0, 0, 15, 4);
    "DBGBCR<n>_EL1" "ARMv8.0" Trapped TDA (2, 0, 0, 0, 5) to (2, 0, 0, 15, 5);
    "DBGWVR<n>_EL1" "ARMv8.0" Trapped TDA (2, 0, 0, 0, 6) to (2, 0, 0, 15, 6);
    "DBGWCR<n>_EL1" "ARMv8.0" Trapped TDA (2, 0, 0, 0, 7) to (2, 0, 0, 15, 7);
    "MDCCINT_EL1" "ARMv8.0" (Ignores 0) TDA (2, 0, 0, 2, 0);
    "MDSCR_EL1" "ARMv8.0" Trapped TDA (2, 0, 0, 2, 2);
    "OSDTRTX_EL1" "ARMv8.0" (Ignores 0) TDA (2, 0, 0, 3, 2);
    "MDSELR_EL1" "FEAT_Debugv8p9" Hidden FINE2 (2, 0, 0, 4, 2);
    "MDSTEPOP_EL1" "FEAT_STEP2" Hidden ENSTEPOP (2, 0, 0, 5, 2);
    "OSECCR_EL1" "ARMv8.0" (Ignores 0) TDA (2, 0, 0, 6, 2);
    "MDRAR_EL1" "ARMv8.0" (Reads 0) TDRA (2, 0, 1, 0, 0);
    "OSLAR_EL1" "ARMv8.0" Trapped TDOSA (2, 0, 1, 0, 4);
    "OSLSR_EL1" "ARMv8.0" Trapped TDOSA (2, 0, 1, 1, 4);
    "OSDLR_EL1" "FEAT_DoubleLock" (Ignores 0) TDOSA (2, 0, 1, 3, 4);
    "DBGPRCR_EL1" "ARMv8.0" (Ignores 0) TDOSA (2, 0, 1, 4, 4);
    "DBGCLAIMSET_EL1" "ARMv8.0" (Ignores 0) TDA (2, 0, 7, 8, 6);
    "DBGCLAIMCLR_EL1" "ARMv8.0" (Ignores 0) TDA (2, 0, 7, 9, 6);
    "DBGAUTHSTATUS_EL1" "ARMv8.0" (Reads 0) TDA (2, 0, 7, 14, 6);
    "SPMCGCR<n>_EL1" "FEAT_SPMU" Hidden ENSPM (2, 0, 9, 13, 0) to (2, 0, 9, 13, 1);
    "SPMACCESSR_EL1, SPMIIDR_EL1, SPMDEVARCH_EL1, SPMDEVAFF_EL1, SPMCFGR_EL1" "FEAT_SPMU" Hidden ENSPM
        (2, 0, 9, 13, 3) to (2, 0, 9, 13, 7);
    "SPMINTENSET_EL1, SPMINTENCLR_EL1" "FEAT_SPMU" Hidden ENSPM (2, 0, 9, 14, 1) to (2, 0, 9, 14, 2);
    "PMEVCNTSVR<n>_EL1, PMCCNTSVR_EL1" "FEAT_PMUv3_SS" Hidden FINE2 (2, 0, 14, 8, 0) to (2, 0, 14, 11, 7);
    "PMICNTSVR_EL1" "FEAT_PMUv3_SS" Hidden FINE2 (2, 0, 14, 12, 0);
    "TRC*" "FEAT_ETE" Hidden TTA (2, 1, 0, 0, 0) to (2, 1, 7, 15, 7);
    "BRBINF<n>_EL1, BRBSRC<n>_EL1, BRBTGT<n>_EL1" "FEAT_BRBE" Hidden FINE (2, 1, 8, 0, 0) to (2, 1, 8, 15, 7);
    "BRBCR_EL1, BRBFCR_EL1, BRBTS_EL1, BRB*INJ_EL1, BRBIDR0_EL1" "FEAT_BRBE" Hidden FINE
        (2, 1, 9, 0, 0) to (2, 1, 9, 2, 2);
    "MDCCSR_EL0" "ARMv8.0" (Reads 0) TDA (2, 3, 0, 1, 0);
    "DBGDTR_EL0" "ARMv8.0" (Ignores 0) TDA (2, 3, 0, 4, 0);
    "DBGDTRRX_EL0, DBGDTRTX_EL0" "ARMv8.0" (Ignores 0) TDA (2, 3, 0, 5, 0);
    "SPMCR_EL0 and others" "FEAT_SPMU" Hidden ENSPM (2, 3, 9, 12, 0) to (2, 3, 9, 14, 7);
    "SPMEVCNTR<n>_EL0 and others" "FEAT_SPMU" Hidden ENSPM (2, 3, 14, 0, 0) to (2, 3, 14, 15, 7);
    "SPMSCR_EL1" "FEAT_SPMU" Hidden ENSPM (2, 7, 9, 14, 7);

    // What the processor is.
    "MIDR_EL1" "ARMv8.0" Constant (3, 0, 0, 0, 0);
    "MPIDR_EL1" "ARMv8.0" Switched (3, 0, 0, 0, 5);
    "REVIDR_EL1" "ARMv8.0" Constant (3, 0, 0, 0, 6);
    "ID_*_EL1" "ARMv8.0" Trapped TID3 (3, 0, 0, 1, 0) to (3, 0, 0, 7, 7);

    // Control, by `HCR_EL2.TVM` while caches are off, `TACR`, `CPTR_EL2` and `HCRX_EL2`.
    "SCTLR_EL1" "ARMv8.0" Switched (3, 0, 1, 0, 0);
    "ACTLR_EL1" "ARMv8.0" (Ignores 0) TACR (3, 0, 1, 0, 1);
    "CPACR_EL1" "ARMv8.0" Switched (3, 0, 1, 0, 2);
    "SCTLR2_EL1" "FEAT_SCTLR2" Hidden SCTLR2EN (3, 0, 1, 0, 3);
    "RGSR_EL1" "FEAT_MTE2" Hidden ATA (3, 0, 1, 0, 5);
    "GCR_EL1" "FEAT_MTE2" Hidden ATA (3, 0, 1, 0, 6);
    "ZCR_EL1" "FEAT_SVE" Hidden TZ (3, 0, 1, 2, 0);
    "TRFCR_EL1" "FEAT_TRF" Hidden TTRF (3, 0, 1, 2, 1);
    "TRCITECR_EL1" "FEAT_ITE" Hidden FINE2 (3, 0, 1, 2, 3);
    // Trapped by the fine-grained traps. QEMU has SME without them, and its own reads as zero.
    "SMPRI_EL1" "FEAT_SME" (Ignores 0) FINE (3, 0, 1, 2, 4);
    "SMCR_EL1" "FEAT_SME" Hidden TSM (3, 0, 1, 2, 6);
    "SCTLRMASK_EL1, ACTLRMASK_EL1, CPACRMASK_EL1, SCTLR2MASK_EL1, and aliases" "FEAT_SRMASK" Hidden SRMASKEN
        (3, 0, 1, 4, 0) to (3, 0, 1, 4, 7);
    "TTBR0_EL1" "ARMv8.0" Switched (3, 0, 2, 0, 0);
    "TTBR1_EL1" "ARMv8.0" Switched (3, 0, 2, 0, 1);
    "TCR_EL1" "ARMv8.0" Switched (3, 0, 2, 0, 2);
    "TCR2_EL1" "FEAT_TCR2" Hidden TCR2EN (3, 0, 2, 0, 3);
    "APIAKey*_EL1, APIBKey*_EL1" "FEAT_PAuth" Switched (3, 0, 2, 1, 0) to (3, 0, 2, 1, 3);
    "APDAKey*_EL1, APDBKey*_EL1" "FEAT_PAuth" Switched (3, 0, 2, 2, 0) to (3, 0, 2, 2, 3);
    "APGAKey*_EL1" "FEAT_PAuth" Switched (3, 0, 2, 3, 0) to (3, 0, 2, 3, 1);
    "GCSCR_EL1, GCSPR_EL1, GCSCRE0_EL1" "FEAT_GCS" Hidden FINE (3, 0, 2, 5, 0) to (3, 0, 2, 5, 2);
    "TCRMASK_EL1, TCR2MASK_EL1, and aliases" "FEAT_SRMASK" Hidden SRMASKEN (3, 0, 2, 7, 0) to (3, 0, 2, 7, 7);

    // Exceptions and PSTATE.
    "SPSR_EL1" "ARMv8.0" Switched (3, 0, 4, 0, 0);
    "ELR_EL1" "ARMv8.0" Switched (3, 0, 4, 0, 1);
    "SP_EL0" "ARMv8.0" Switched (3, 0, 4, 1, 0);
    "SPSel" "ARMv8.0" Switched (3, 0, 4, 2, 0);
    "CurrentEL" "ARMv8.0" Switched (3, 0, 4, 2, 2);
    "PAN" "FEAT_PAN" Switched (3, 0, 4, 2, 3);
    "UAO" "FEAT_UAO" Switched (3, 0, 4, 2, 4);
    "ALLINT" "FEAT_NMI" Hidden TALLINT (3, 0, 4, 3, 0);
    "PM" "FEAT_EBEP" Switched (3, 0, 4, 3, 1);
    "ICC_PMR_EL1" "FEAT_GICv3" Switched (3, 0, 4, 6, 0);
    "AFSR0_EL1" "ARMv8.0" Switched (3, 0, 5, 1, 0);
    "AFSR1_EL1" "ARMv8.0" Switched (3, 0, 5, 1, 1);
    "ESR_EL1" "ARMv8.0" Switched (3, 0, 5, 2, 0);
    "ERRIDR_EL1, ERRSELR_EL1, ERXGSR_EL1" "FEAT_RAS" Hidden TERR (3, 0, 5, 3, 0) to (3, 0, 5, 3, 2);
    "ERXFR_EL1, ERXCTLR_EL1, ERXSTATUS_EL1, ERXADDR_EL1, ERXPFG*_EL1" "FEAT_RAS" Hidden TERR
        (3, 0, 5, 4, 0) to (3, 0, 5, 4, 6);
    "ERXMISC<n>_EL1" "FEAT_RAS" Hidden TERR (3, 0, 5, 5, 0) to (3, 0, 5, 5, 3);
    "TFSR_EL1, TFSRE0_EL1" "FEAT_MTE2" Hidden ATA (3, 0, 5, 6, 0) to (3, 0, 5, 6, 1);
    "FAR_EL1" "ARMv8.0" Switched (3, 0, 6, 0, 0);
    "PFAR_EL1" "FEAT_PFAR" Hidden FINE2 (3, 0, 6, 0, 5);
    "PAR_EL1" "ARMv8.0" Switched (3, 0, 7, 4, 0);

    // Profiling, the trace's buffer, the PMU: by `MDCR_EL2`.
    "PMS*_EL1" "FEAT_SPE" Hidden TPMS (3, 0, 9, 9, 0) to (3, 0, 9, 9, 7);
    "PMB*_EL1, PMSDSFR_EL1" "FEAT_SPE" Hidden E2PB (3, 0, 9, 10, 0) to (3, 0, 9, 10, 7);
    "TRB*_EL1" "FEAT_TRBE" Hidden E2TB (3, 0, 9, 11, 0) to (3, 0, 9, 11, 7);
    "PMSSCR_EL1" "FEAT_PMUv3_SS" Hidden FINE2 (3, 0, 9, 13, 3);
    "PMINTENSET_EL1, PMINTENCLR_EL1" "FEAT_PMUv3" Trapped TPM (3, 0, 9, 14, 1) to (3, 0, 9, 14, 2);
    "PMUACR_EL1, PMECR_EL1" "FEAT_PMUv3p9, FEAT_EBEP" Hidden FINE2 (3, 0, 9, 14, 4) to (3, 0, 9, 14, 5);
    "PMMIR_EL1" "FEAT_PMUv3p4" Trapped TPM (3, 0, 9, 14, 6);
    "PMIAR_EL1" "FEAT_SEBEP" Hidden FINE2 (3, 0, 9, 14, 7);

    // Memory attributes, regions and partitions.
    "MAIR_EL1" "ARMv8.0" Switched (3, 0, 10, 2, 0);
    "MAIR2_EL1" "FEAT_AIE" Hidden FINE (3, 0, 10, 2, 1);
    "PIRE0_EL1, PIR_EL1" "FEAT_S1PIE" Hidden FINE (3, 0, 10, 2, 2) to (3, 0, 10, 2, 3);
    "POR_EL1" "FEAT_S1POE" Hidden FINE (3, 0, 10, 2, 4);
    "S2POR_EL1" "FEAT_S2POE" Hidden FINE (3, 0, 10, 2, 5);
    "AMAIR_EL1" "ARMv8.0" Switched (3, 0, 10, 3, 0);
    "AMAIR2_EL1" "FEAT_AIE" Hidden FINE (3, 0, 10, 3, 1);
    "LORSA_EL1, LOREA_EL1, LORN_EL1, LORC_EL1" "FEAT_LOR" Hidden TLOR (3, 0, 10, 4, 0) to (3, 0, 10, 4, 3);
    "MPAMIDR_EL1, MPAMBWIDR_EL1" "FEAT_MPAM" Hidden MPAMID (3, 0, 10, 4, 4) to (3, 0, 10, 4, 5);
    "LORID_EL1" "FEAT_LOR" Hidden TLOR (3, 0, 10, 4, 7);
    "MPAM1_EL1, MPAM0_EL1, MPAMSM_EL1, MPAMBW*_EL1" "FEAT_MPAM" Hidden TRAPMPAM (3, 0, 10, 5, 0) to (3, 0, 10, 5, 7);

    // Vectors, errors and interrupts. With `HCR_EL2.AMO` a guest's `DISR_EL1` is `VDISR_EL2`; its `ICC_*_EL1` are those
    // of the virtual interface.
    "VBAR_EL1" "ARMv8.0" Switched (3, 0, 12, 0, 0);
    "RVBAR_EL1" "ARMv8.0" Hidden UNDEFINED (3, 0, 12, 0, 1);
    "RMR_EL1" "ARMv8.0" Hidden UNDEFINED (3, 0, 12, 0, 2);
    "ISR_EL1" "ARMv8.0" Switched (3, 0, 12, 1, 0);
    "DISR_EL1" "FEAT_RAS" Switched (3, 0, 12, 1, 1);
    "ICC_IAR0_EL1" "FEAT_GICv3" Switched (3, 0, 12, 8, 0);
    "ICC_EOIR0_EL1" "FEAT_GICv3" Switched (3, 0, 12, 8, 1);
    "ICC_HPPIR0_EL1" "FEAT_GICv3" Switched (3, 0, 12, 8, 2);
    "ICC_BPR0_EL1" "FEAT_GICv3" Switched (3, 0, 12, 8, 3);
    "ICC_AP0R<n>_EL1" "FEAT_GICv3" Switched (3, 0, 12, 8, 4) to (3, 0, 12, 8, 7);
    "ICC_AP1R<n>_EL1" "FEAT_GICv3" Switched (3, 0, 12, 9, 0) to (3, 0, 12, 9, 3);
    // A guest has no interrupt that cannot be masked.
    "ICC_NMIAR1_EL1" "FEAT_GICv3_NMI" Constant (3, 0, 12, 9, 5);
    "ICC_DIR_EL1" "FEAT_GICv3" Trapped TDIR (3, 0, 12, 11, 1);
    "ICC_RPR_EL1" "FEAT_GICv3" Switched (3, 0, 12, 11, 3);
    "ICC_SGI1R_EL1" "FEAT_GICv3" Trapped IMO (3, 0, 12, 11, 5);
    "ICC_ASGI1R_EL1" "FEAT_GICv3" Trapped IMO (3, 0, 12, 11, 6);
    "ICC_SGI0R_EL1" "FEAT_GICv3" Trapped FMO (3, 0, 12, 11, 7);
    "ICC_IAR1_EL1" "FEAT_GICv3" Switched (3, 0, 12, 12, 0);
    "ICC_EOIR1_EL1" "FEAT_GICv3" Switched (3, 0, 12, 12, 1);
    "ICC_HPPIR1_EL1" "FEAT_GICv3" Switched (3, 0, 12, 12, 2);
    "ICC_BPR1_EL1" "FEAT_GICv3" Switched (3, 0, 12, 12, 3);
    "ICC_CTLR_EL1" "FEAT_GICv3" Switched (3, 0, 12, 12, 4);
    "ICC_SRE_EL1" "FEAT_GICv3" (Ignores 7) ENABLE (3, 0, 12, 12, 5);
    "ICC_IGRPEN0_EL1" "FEAT_GICv3" Switched (3, 0, 12, 12, 6);
    "ICC_IGRPEN1_EL1" "FEAT_GICv3" Switched (3, 0, 12, 12, 7);
    // Of GICv5 (Arm AES 0070).
    "ICC_PPI_HMR<n>_EL1, ICC_IDR0_EL1, ICC_HPPIR_EL1, ICC_ICSR_EL1, ICC_IAFFIDR_EL1, ICC_PPI_ENABLER<n>_EL1" "FEAT_GCIE"
        Hidden GICV5 (3, 0, 12, 10, 0) to (3, 0, 12, 10, 7);
    "ICC_PPI_CACTIVER<n>_EL1, *_SACTIVER, *_CPENDR, *_SPENDR, *_PRIORITYR" "FEAT_GCIE" Hidden GICV5
        (3, 0, 12, 13, 0) to (3, 0, 12, 15, 7);
    "ICC_APR_EL1, ICC_CR0_EL1, ICC_PCR_EL1" "FEAT_GCIE" Hidden GICV5 (3, 1, 12, 0, 0) to (3, 1, 12, 0, 2);

    // Software's own words.
    "CONTEXTIDR_EL1" "ARMv8.0" Switched (3, 0, 13, 0, 1);
    "RCWSMASK_EL1" "FEAT_THE" Hidden FINE (3, 0, 13, 0, 3);
    "TPIDR_EL1" "ARMv8.0" Switched (3, 0, 13, 0, 4);
    "ACCDATA_EL1" "FEAT_LS64_ACCDATA" Hidden FINE (3, 0, 13, 0, 5);
    "RCWMASK_EL1" "FEAT_THE" Hidden FINE (3, 0, 13, 0, 6);
    "SCXTNUM_EL1" "FEAT_CSV2_2" Hidden ENSCXT (3, 0, 13, 0, 7);
    "CNTKCTL_EL1" "ARMv8.0" Switched (3, 0, 14, 1, 0);

    // Caches.
    "CCSIDR_EL1" "ARMv8.0" Constant (3, 1, 0, 0, 0);
    "CLIDR_EL1" "ARMv8.0" Constant (3, 1, 0, 0, 1);
    "CCSIDR2_EL1" "FEAT_CCIDX" Constant (3, 1, 0, 0, 2);
    "GMID_EL1" "FEAT_MTE2" Hidden TID5 (3, 1, 0, 0, 4);
    "SMIDR_EL1" "FEAT_SME" Constant (3, 1, 0, 0, 6);
    "AIDR_EL1" "ARMv8.0" Constant (3, 1, 0, 0, 7);
    "CSSELR_EL1" "ARMv8.0" Switched (3, 2, 0, 0, 0);
    "CTR_EL0" "ARMv8.0" Constant (3, 3, 0, 0, 1);
    "DCZID_EL0" "ARMv8.0" Constant (3, 3, 0, 0, 7);

    // EL0.
    "RNDR" "FEAT_RNG" Constant (3, 3, 2, 4, 0);
    "RNDRRS" "FEAT_RNG" Constant (3, 3, 2, 4, 1);
    "GCSPR_EL0" "FEAT_GCS" Hidden FINE (3, 3, 2, 5, 1);
    "NZCV" "ARMv8.0" Switched (3, 3, 4, 2, 0);
    "DAIF" "ARMv8.0" Switched (3, 3, 4, 2, 1);
    "SVCR" "FEAT_SME" Hidden TSM (3, 3, 4, 2, 2);
    "DIT" "FEAT_DIT" Switched (3, 3, 4, 2, 5);
    "SSBS" "FEAT_SSBS2" Switched (3, 3, 4, 2, 6);
    "TCO" "FEAT_MTE" Switched (3, 3, 4, 2, 7);
    "FPCR" "ARMv8.0" Switched (3, 3, 4, 4, 0);
    "FPSR" "ARMv8.0" Switched (3, 3, 4, 4, 1);
    "FPMR" "FEAT_FPMR" Hidden ENFPM (3, 3, 4, 4, 2);
    "DSPSR_EL0, DLR_EL0" "ARMv8.0, in Debug state" Hidden UNDEFINED (3, 3, 4, 5, 0) to (3, 3, 4, 5, 1);
    "PMICNTR_EL0" "FEAT_PMUv3_ICNTR" Hidden TPM (3, 3, 9, 4, 0);
    "PMICFILTR_EL0" "FEAT_PMUv3_ICNTR" Hidden TPM (3, 3, 9, 6, 0);
    "PMCR_EL0, PMCNTEN*_EL0, PMOVSCLR_EL0, PMSWINC_EL0, PMSELR_EL0, PMCEID<n>_EL0" "FEAT_PMUv3" Trapped TPM
        (3, 3, 9, 12, 0) to (3, 3, 9, 12, 7);
    "PMCCNTR_EL0, PMXEVTYPER_EL0, PMXEVCNTR_EL0" "FEAT_PMUv3" Trapped TPM (3, 3, 9, 13, 0) to (3, 3, 9, 13, 2);
    "PMZR_EL0" "FEAT_PMUv3p9" Hidden TPM (3, 3, 9, 13, 4);
    "PMUSERENR_EL0" "FEAT_PMUv3" Trapped TPM (3, 3, 9, 14, 0);
    "PMOVSSET_EL0" "FEAT_PMUv3" Trapped TPM (3, 3, 9, 14, 3);
    "POR_EL0" "FEAT_S1POE" Hidden FINE (3, 3, 10, 2, 4);
    "TPIDR_EL0" "ARMv8.0" Switched (3, 3, 13, 0, 2);
    "TPIDRRO_EL0" "ARMv8.0" Switched (3, 3, 13, 0, 3);
    // Undefined where there are fine-grained traps; SME without them is QEMU's alone.
    "TPIDR2_EL0" "FEAT_SME" Switched (3, 3, 13, 0, 5);
    "SCXTNUM_EL0" "FEAT_CSV2_2" Hidden ENSCXT (3, 3, 13, 0, 7);
    "AM*_EL0" "FEAT_AMUv1" Hidden TAM (3, 3, 13, 2, 0) to (3, 3, 13, 15, 7);

    // Timers. The virtual ones are behind by an offset of the VM's.
    "CNTFRQ_EL0" "ARMv8.0" Constant (3, 3, 14, 0, 0);
    "CNTPCT_EL0" "ARMv8.0" Constant (3, 3, 14, 0, 1);
    "CNTVCT_EL0" "ARMv8.0" Switched (3, 3, 14, 0, 2);
    "CNTPCTSS_EL0" "FEAT_ECV" Constant (3, 3, 14, 0, 5);
    "CNTVCTSS_EL0" "FEAT_ECV" Switched (3, 3, 14, 0, 6);
    "CNTP_TVAL_EL0, CNTP_CTL_EL0, CNTP_CVAL_EL0" "ARMv8.0" Switched (3, 3, 14, 2, 0) to (3, 3, 14, 2, 2);
    "CNTV_TVAL_EL0" "ARMv8.0" Switched (3, 3, 14, 3, 0);
    "CNTV_CTL_EL0" "ARMv8.0" Switched (3, 3, 14, 3, 1);
    "CNTV_CVAL_EL0" "ARMv8.0" Switched (3, 3, 14, 3, 2);
    "PMEVCNTR<n>_EL0" "FEAT_PMUv3" Trapped TPM (3, 3, 14, 8, 0) to (3, 3, 14, 11, 7);
    "PMEVTYPER<n>_EL0, PMCCFILTR_EL0" "FEAT_PMUv3" Trapped TPM (3, 3, 14, 12, 0) to (3, 3, 14, 15, 7);

    "CNTPS_TVAL_EL1, CNTPS_CTL_EL1, CNTPS_CVAL_EL1" "Secure EL1" Hidden UNDEFINED (3, 7, 14, 2, 0) to (3, 7, 14, 2, 2);

    // The implementation's own, by `HCR_EL2.TIDCP`. Its op0 of 3 alone: there are no others.
    "S3_<op1>_C11_<Cm>_<op2>" "the implementation" Hidden TIDCP (3, 0, 11, 0, 0) to (3, 7, 11, 15, 7);
    "S3_<op1>_C15_<Cm>_<op2>" "the implementation" Hidden TIDCP (3, 0, 15, 0, 0) to (3, 7, 15, 15, 7);
};
