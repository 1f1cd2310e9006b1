//! What keeps the guests of a machine in: what all of them share.

use core::marker::PhantomData;

use mayfly_vm::stage2::Npt;

use crate::svm::features::Features;

/// What all guests of a machine share, whose tables are of format `F`.
#[derive(Clone, Copy, Debug)]
pub struct Confinement<F> {
    pub(super) features: Features,
    /// Whose roots are loaded.
    pub(super) tlbs: usize,
    walked: PhantomData<F>,
}

impl Confinement<Npt> {
    /// On processors that have these features. The vCPUs are those of VMs on an [`Mmu`](mayfly_vm::platform::Mmu) whose TLBs are
    /// `tlbs`.
    ///
    /// # Safety
    ///
    /// SVM is on in every processor that a guest runs on, with nested paging, and each has these features. An `Mmu` whose
    /// [TLBs](mayfly_vm::platform::tlb::Tlb::tlbs) are `tlbs` is one of this machine.
    pub const unsafe fn new(features: Features, tlbs: usize) -> Self {
        Self { features, tlbs, walked: PhantomData }
    }
}
