//! The events of a guest that is entered, and left.

use mayfly_hwtrace::{Barrier, Event};
use mayfly_vm::platform::address::Pfn;
use mayfly_vm::platform::tlb::Vmid;

use super::note;
use crate::bare::processor::cpu;

/// A guest is about to translate by the root at `top`, under `vmid`. Out of line: most runs keep no trace.
#[cold]
#[inline(never)]
pub(crate) fn enters(top: Pfn, vmid: Vmid) {
    // The barrier of the way in comes before the guest's first walk, too.
    note(|| Event::Barrier { kind: Barrier::Walks });
    note(|| Event::Enter { tlb: cpu::number() as u32, top: top.get(), vmid: vmid.0 });
}

/// It no longer does.
#[cold]
#[inline(never)]
pub(crate) fn leaves(vmid: Vmid) {
    note(|| Event::Leave { tlb: cpu::number() as u32, vmid: vmid.0 });
}
