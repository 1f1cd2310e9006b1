//! Why a processor cannot walk a format's tables.

/// Why a processor cannot walk a format's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArmUnsupported {
    /// `ID_AA64MMFR0_EL1.TGran4_2`: stage 2 does not have the granule of 4 KiB.
    #[error("the processor's stage 2 does not support the 4 KiB granule")]
    Granule,
    /// `ID_AA64MMFR0_EL1.PARange`: a guest's addresses have no more bits than physical ones.
    #[error(
        "guest physical addresses of {ipa_bits} bits are wider than the processor's {pa_bits} bits"
    )]
    IpaBits {
        /// Those asked for.
        ipa_bits: u32,
        /// Those that there are, [`ArmFeatures::pa_bits`](crate::ArmFeatures::pa_bits).
        pa_bits: u32,
    },
    /// `ID_AA64MMFR2_EL1.FWB`: stage 2 cannot force write-back, and the format relies on it.
    #[error(
        "the processor cannot force write-back at stage 2, which the format requires: choose one without FWB"
    )]
    Fwb,
}
