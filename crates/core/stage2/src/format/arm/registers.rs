//! What a processor has to be told to walk a format's tables.

use mayfly_platform::address::{PAGE_SHIFT, Pfn};
use mayfly_platform::tlb::Vmid;

use super::{Arm, ArmFeatures, ArmUnsupported};
use crate::{Format, Level};

/// Inner and outer write-back, with read- and write-allocate; inner shareable: how tables are walked (IRGN0, ORGN0,
/// SH0).
const WALKS: u64 = 0b01 << 8 | 0b01 << 10 | 0b11 << 12;
const SL0_SHIFT: u32 = 6;
const PS_SHIFT: u32 = 16;
/// VMIDs have 16 bits.
const VS: u64 = 1 << 19;
const RES1: u64 = 1 << 31;
/// `HCR_EL2.FWB`.
const HCR_FWB: u64 = 1 << 46;
const VMID_SHIFT: u32 = 48;

impl<const IPA_BITS: u32, const FWB: bool> Arm<IPA_BITS, FWB> {
    /// What `HCR_EL2` has to have of the bits that the format decides over, which is FWB (bit 46) alone. TLBs may
    /// remember it with an entry, so it is the same on all CPUs that run the VM, and never changes for a VMID.
    pub const HCR: u64 = if FWB { HCR_FWB } else { 0 };

    /// `VTCR_EL2` (DDI 0487, at that register) for processors with these features:
    ///
    /// | field | bits | value |
    /// | --- | --- | --- |
    /// | T0SZ | 5:0 | 64 less the bits of a guest's addresses |
    /// | SL0 | 7:6 | 1 for a walk that begins at level 1, 2 for level 0 |
    /// | IRGN0, ORGN0, SH0 | 13:8 | write-back, read- and write-allocate; inner shareable |
    /// | TG0 | 15:14 | 0, 4 KiB |
    /// | PS | 18:16 | `PARange`, 5 (48 bits) at most |
    /// | VS | 19 | set, if VMIDs have 16 bits |
    /// | HA, HD | 21, 22 | clear: hardware writes nothing to the tables |
    /// | DS, SL2 | 32, 33 | clear: without `FEAT_LPA2` |
    /// | RES1 | 31 | set |
    ///
    /// What else there is stays clear.
    ///
    /// # Errors
    ///
    /// What a processor would answer every access with a fault for ("Supported IPA size", and the pseudocode's
    /// `AArch64.S2TxSZFaults`, `AArch64.S2InvalidSL`, `AArch64.S2InconsistentSL`), or worse:
    ///
    /// - [`ArmUnsupported::Granule`];
    /// - [`ArmUnsupported::IpaBits`]. A walk from level 0 is for 44 bits of physical address and more, which this
    ///   implies, as a format that has one has as many itself;
    /// - [`ArmUnsupported::Fwb`], where the format forces write-back. A format that does not is for every processor.
    pub const fn vtcr(features: ArmFeatures) -> Result<u64, ArmUnsupported> {
        let pa_bits = features.pa_bits();
        if !features.has_granule() {
            return Err(ArmUnsupported::Granule);
        }
        if IPA_BITS > pa_bits {
            return Err(ArmUnsupported::IpaBits { ipa_bits: IPA_BITS, pa_bits });
        }
        if FWB && !features.has_fwb() {
            return Err(ArmUnsupported::Fwb);
        }
        let t0sz = 64 - IPA_BITS as u64;
        let sl0 = if <Self as Format>::TOP.shift() == Level::GIB512.shift() { 2 } else { 1 };
        let ps: u64 = match pa_bits {
            ..36 => 0,
            36..40 => 1,
            40..42 => 2,
            42..44 => 3,
            44..48 => 4,
            _ => 5,
        };
        let vs = if features.vmid_bits() == 16 { VS } else { 0 };
        Ok(t0sz | sl0 << SL0_SHIFT | WALKS | ps << PS_SHIFT | vs | RES1)
    }

    /// `VTTBR_EL2` (DDI 0487, at that register) for the root whose first table is in frame `top`, under `vmid`: the
    /// table's address in bits 47:1, the VMID in bits 63:48. `CnP`, bit 0, is clear, since a root need not be the same
    /// on all CPUs at a time.
    pub const fn vttbr(top: Pfn, vmid: Vmid) -> u64 {
        (vmid.0 as u64) << VMID_SHIFT | top.get() << PAGE_SHIFT
    }
}
