//! What a trace says of TLBs and of guests that are entered. Invalidations are broadcast: a VMID is the same on all processors.

use mayfly_hwtrace::{Barrier, Event};
use mayfly_vm::platform::address::Pfn;
use mayfly_vm::platform::tlb::Vmid;

use crate::bare::processor::cpu;
use crate::bare::processor::trace::note;

/// Why no trace is kept.
pub(crate) const fn refused() -> Option<&'static str> {
    None
}

/// Whether guests may go past the caches.
pub(crate) const CACHES_MAINTAINED: bool = true;

/// Calls `keep` with what a trace says of an event of the core's.
pub(crate) fn each(event: Event, mut keep: impl FnMut(Event)) {
    keep(event);
}

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
