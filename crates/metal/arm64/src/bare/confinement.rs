//! What keeps the guests of a machine in: what the registers hold that all of them share.

use core::marker::PhantomData;

use mayfly_vm::stage2::Arm;

use super::tlb::EmptyRoot;

/// What all guests of a machine share, whose tables are of format `F`.
#[derive(Clone, Copy, Debug)]
pub struct Confinement<F> {
    /// What `VTTBR_EL2` names outside of guests.
    pub(super) empty: EmptyRoot,
    /// `HCR_EL2.FWB`, as the format has it.
    pub(super) hcr: u64,
    /// `ID_AA64MMFR0_EL1.PARange` that guests see.
    pub(super) pa_range: u64,
    /// Whose roots are loaded.
    pub(super) tlbs: usize,
    walked: PhantomData<F>,
}

impl<const IPA_BITS: u32, const FWB: bool> Confinement<Arm<IPA_BITS, FWB>> {
    /// With `empty` for what `VTTBR_EL2` names outside of guests, and `pa_range` for `ID_AA64MMFR0_EL1.PARange`. The
    /// vCPUs are those of VMs on an [`Mmu`](mayfly_vm::platform::Mmu) whose TLBs are `tlbs`.
    ///
    /// # Safety
    ///
    /// The format is that of which [`cpu::prepare`] was told `VTCR_EL2` on every processor that a guest runs on. An
    /// `Mmu` whose [TLBs](mayfly_vm::platform::tlb::Tlb::tlbs) are `tlbs` is one of this machine.
    pub unsafe fn new(empty: EmptyRoot, pa_range: u64, tlbs: usize) -> Self {
        let hcr = Arm::<IPA_BITS, FWB>::HCR;
        Self { empty, hcr, pa_range, tlbs, walked: PhantomData }
    }
}
