//! AMD's nested page tables.

use mayfly_vm::stage2::Npt;
use mayfly_x86::bare::guest::Confinement;

use crate::bare::processor::shared;
use crate::bare::processor::this_cpu::asid_bits;
use crate::bare::vm::format::{TableFormat, WithFormat};
use crate::bare::world::x86::MACHINE;

impl TableFormat for Npt {
    fn confinement() -> Confinement<Self> {
        // SAFETY: SVM was turned on in every processor before it ran a thread, and each has these features; `MACHINE` numbers
        // the TLBs of this machine's `Mmu` alone.
        unsafe { Confinement::new(shared::get().features, MACHINE) }
    }
}

/// Does `work` with the format that this machine's processors have.
pub(crate) fn with_format<W: WithFormat>(work: W) -> W::Output {
    work.run::<Npt>()
}

/// Bits of a VMID.
pub(crate) fn vmid_bits() -> u32 {
    asid_bits(shared::get().features)
}
