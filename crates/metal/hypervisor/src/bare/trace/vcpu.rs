//! A guest that is entered, and left.

use mayfly_arm64::cpu;
use mayfly_hwtrace::{Barrier, Event};
use mayfly_vm::platform::address::Pfn;
use mayfly_vm::platform::tlb::Vmid;

use super::note;

/// A guest is about to translate by the root at `top`, under `vmid`. Out of the way of who keeps no trace.
#[cold]
#[inline(never)]
pub(in crate::bare) fn enters(top: Pfn, vmid: Vmid) {
    // The barrier of the way in comes before the guest's first walk, too.
    note(|| Event::Barrier { kind: Barrier::Walks });
    note(|| Event::Enter { tlb: cpu::number() as u32, top: top.get(), vmid: vmid.0 });
}

/// It does no more.
#[cold]
#[inline(never)]
pub(in crate::bare) fn leaves(vmid: Vmid) {
    note(|| Event::Leave { tlb: cpu::number() as u32, vmid: vmid.0 });
}
