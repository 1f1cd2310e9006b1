//! Arm's stage 2, with forced write-back where the processors have it.

use mayfly_arm64::confinement::Confinement;
use mayfly_arm64::cpu;
use mayfly_vm::stage2::Arm;

use crate::bare::processor::shared;
use crate::bare::vm::format::{TableFormat, WithFormat};
use crate::bare::world::arm64::MACHINE;

/// Bits of a guest's physical addresses.
pub(crate) const IPA_BITS: u32 = 40;
/// `ID_AA64MMFR0_EL1.PARange` of as many.
pub(super) const PA_RANGE: u64 = 2;

impl<const FWB: bool> TableFormat for Arm<IPA_BITS, FWB> {
    fn confinement() -> Confinement<Self> {
        let shared = shared::get();
        assert!(Self::vtcr(cpu::stage2_features()) == Ok(shared.vtcr), "tables of another format");
        // SAFETY: the processors were prepared with this VTCR_EL2; `MACHINE` numbers the TLBs of this machine's `Mmu` alone.
        unsafe { Confinement::new(shared.empty, PA_RANGE, MACHINE) }
    }
}

/// Does `work` with the format that this machine's processors have.
pub(crate) fn with_format<W: WithFormat>(work: W) -> W::Output {
    if cpu::stage2_features().has_fwb() {
        work.run::<Arm<IPA_BITS, true>>()
    } else {
        work.run::<Arm<IPA_BITS, false>>()
    }
}

/// Bits of a VMID.
pub(crate) fn vmid_bits() -> u32 {
    cpu::stage2_features().vmid_bits()
}
