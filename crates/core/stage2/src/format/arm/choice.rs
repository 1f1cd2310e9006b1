//! Which format it is to be, where that is known when the program runs.

use super::{Arm, ArmFeatures, ArmUnsupported};

/// Sizes of a guest's physical addresses that are chosen among: those that physical addresses come in
/// (`ID_AA64MMFR0_EL1.PARange`), so that on every processor there is one for every size that it can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ArmIpa {
    /// 32 bits: 4 GiB.
    Bits32,
    /// 36 bits: 64 GiB.
    Bits36,
    /// 40 bits: 1 TiB.
    Bits40,
    /// 42 bits: 4 TiB.
    Bits42,
    /// 44 bits: 16 TiB.
    Bits44,
    /// 48 bits: 256 TiB.
    Bits48,
}

impl ArmIpa {
    /// All of them, in order.
    pub const ALL: [Self; 6] =
        [Self::Bits32, Self::Bits36, Self::Bits40, Self::Bits42, Self::Bits44, Self::Bits48];

    /// How many bits that is.
    pub const fn bits(self) -> u32 {
        match self {
            Self::Bits32 => 32,
            Self::Bits36 => 36,
            Self::Bits40 => 40,
            Self::Bits42 => 42,
            Self::Bits44 => 44,
            Self::Bits48 => 48,
        }
    }

    /// The smallest with at least so many bits; `None` above 48.
    pub fn with_bits(bits: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|size| bits <= size.bits())
    }
}

/// A format that processors can walk, and what they have to be told. Made by [`ArmFeatures::choose`].
///
/// The format itself is a type, so that no entry that is written or read costs a choice; [`ArmChoice::with`] goes from
/// the one to the other, once for all that a hypervisor builds of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ArmChoice {
    ipa: ArmIpa,
    fwb: bool,
    vtcr: u64,
}

/// Work that is generic in Arm's formats: a closure cannot be.
pub trait WithArm {
    /// What it comes to.
    type Output;

    /// Does it in [`Arm<IPA_BITS, FWB>`](Arm).
    fn with<const IPA_BITS: u32, const FWB: bool>(self) -> Self::Output;
}

impl ArmFeatures {
    /// The format for guests with at least `ipa_bits` bits of address: the smallest that has as many, with
    /// [FWB](super::ArmFwb) where processors have it.
    ///
    /// # Errors
    ///
    /// [`ArmUnsupported`] says what stands in the way.
    pub fn choose(self, ipa_bits: u32) -> Result<ArmChoice, ArmUnsupported> {
        // There is one for every number of physical bits, so it does not have more of them than the processor.
        let fitting = ArmIpa::with_bits(ipa_bits).filter(|_| ipa_bits <= self.pa_bits());
        let refused = ArmUnsupported::IpaBits { ipa_bits, pa_bits: self.pa_bits() };
        ArmChoice::try_new(fitting.ok_or(refused)?, self)
    }
}

impl ArmChoice {
    fn try_new(ipa: ArmIpa, features: ArmFeatures) -> Result<Self, ArmUnsupported> {
        let fwb = features.has_fwb();
        let vtcr = in_format(ipa, fwb, Vtcr(features))?;
        Ok(Self { ipa, fwb, vtcr })
    }

    /// The size of the guest's addresses.
    pub const fn ipa(self) -> ArmIpa {
        self.ipa
    }

    /// Whether it is a format that forces write-back.
    pub const fn forces_write_back(self) -> bool {
        self.fwb
    }

    /// `VTCR_EL2`: [`Arm::vtcr`].
    pub const fn vtcr(self) -> u64 {
        self.vtcr
    }

    /// What `HCR_EL2` has to have: [`Arm::HCR`].
    pub fn hcr(self) -> u64 {
        self.with(Hcr)
    }

    /// Does `work` in the format that was chosen.
    pub fn with<W: WithArm>(self, work: W) -> W::Output {
        in_format(self.ipa, self.fwb, work)
    }
}

fn in_format<W: WithArm>(ipa: ArmIpa, fwb: bool, work: W) -> W::Output {
    match (ipa, fwb) {
        (ArmIpa::Bits32, false) => work.with::<32, false>(),
        (ArmIpa::Bits36, false) => work.with::<36, false>(),
        (ArmIpa::Bits40, false) => work.with::<40, false>(),
        (ArmIpa::Bits42, false) => work.with::<42, false>(),
        (ArmIpa::Bits44, false) => work.with::<44, false>(),
        (ArmIpa::Bits48, false) => work.with::<48, false>(),
        (ArmIpa::Bits32, true) => work.with::<32, true>(),
        (ArmIpa::Bits36, true) => work.with::<36, true>(),
        (ArmIpa::Bits40, true) => work.with::<40, true>(),
        (ArmIpa::Bits42, true) => work.with::<42, true>(),
        (ArmIpa::Bits44, true) => work.with::<44, true>(),
        (ArmIpa::Bits48, true) => work.with::<48, true>(),
    }
}

struct Vtcr(ArmFeatures);

impl WithArm for Vtcr {
    type Output = Result<u64, ArmUnsupported>;

    fn with<const IPA_BITS: u32, const FWB: bool>(self) -> Self::Output {
        Arm::<IPA_BITS, FWB>::vtcr(self.0)
    }
}

struct Hcr;

impl WithArm for Hcr {
    type Output = u64;

    fn with<const IPA_BITS: u32, const FWB: bool>(self) -> u64 {
        Arm::<IPA_BITS, FWB>::HCR
    }
}
