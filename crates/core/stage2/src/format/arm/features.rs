//! What processors can do at stage 2, by their ID registers.

/// As wide as addresses are without `FEAT_LPA2`, which is not used.
const PA_BITS_MAX: u32 = 48;

/// What a processor can do at stage 2, as far as a format has to know; or what all of several can
/// ([`ArmFeatures::and`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ArmFeatures {
    pa_bits: u32,
    has_granule: bool,
    vmid_bits: u32,
    has_fwb: bool,
}

impl ArmFeatures {
    /// What these registers of one processor say: `ID_AA64MMFR0_EL1`, `ID_AA64MMFR1_EL1`, and `ID_AA64MMFR2_EL1` (DDI
    /// 0487, "`AArch64` System register descriptions", at each of them).
    ///
    /// - `PARange`, bits 3:0 of the first: 32, 36, 40, 42, 44, 48 bits, and from the value 5 on 48 at least.
    /// - `TGran4_2`, bits 43:40, says whether stage 2 has the granule of 4 KiB: 2 and above that it does, 1 that it
    ///   does not, and 0 that `TGran4`, bits 31:28, says so: a signed number, and not negative where it does.
    ///   ("Alternative ID scheme used for `ID_AA64MMFR0_EL1` stage 2 granule sizes".)
    /// - `VMIDBits`, bits 7:4 of the second: 2 for 16 bits, otherwise 8.
    /// - `FWB`, bits 43:40 of the third: 1 and above where there is `FEAT_S2FWB`.
    pub const fn new(mmfr0: u64, mmfr1: u64, mmfr2: u64) -> Self {
        let pa_bits = match field(mmfr0, 0) {
            0 => 32,
            1 => 36,
            2 => 40,
            3 => 42,
            4 => 44,
            _ => PA_BITS_MAX,
        };
        let has_granule = match field(mmfr0, 40) {
            0 => field(mmfr0, 28) < 8,
            1 => false,
            _ => true,
        };
        let vmid_bits = if field(mmfr1, 4) >= 2 { 16 } else { 8 };
        Self { pa_bits, has_granule, vmid_bits, has_fwb: field(mmfr2, 40) >= 1 }
    }

    /// What processors can do of which some have these features, and some the `others`: a VM that runs on all of them
    /// has to make do with that.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self {
            pa_bits: least(self.pa_bits, others.pa_bits),
            has_granule: self.has_granule && others.has_granule,
            vmid_bits: least(self.vmid_bits, others.vmid_bits),
            has_fwb: self.has_fwb && others.has_fwb,
        }
    }

    /// Bits of a physical address, 48 at most: also of the largest address that a guest can have.
    pub const fn pa_bits(self) -> u32 {
        self.pa_bits
    }

    /// Whether stage 2 has the granule of 4 KiB.
    pub const fn has_granule(self) -> bool {
        self.has_granule
    }

    /// Bits of a VMID, 8 or 16: what [`Vmids::try_new`](crate::Vmids::try_new) is to be told.
    pub const fn vmid_bits(self) -> u32 {
        self.vmid_bits
    }

    /// Whether stage 2 can force write-back (`FEAT_S2FWB`).
    pub const fn has_fwb(self) -> bool {
        self.has_fwb
    }
}

/// The four bits of an ID register from bit `shift` on.
const fn field(register: u64, shift: u32) -> u64 {
    register >> shift & 0xf
}

const fn least(one: u32, other: u32) -> u32 {
    if one < other { one } else { other }
}
