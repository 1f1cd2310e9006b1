//! What a trace says of TLBs and of guests that are entered.
//!
//! Nothing is broadcast: a processor's TLB keeps what it has under an ASID until that processor flushes it, as it enters a guest. So in
//! a trace, each processor has VMIDs of its own, one for each ASID. What the core does with a VMID, a trace says of that VMID of
//! each processor. What a processor flushes is invalidated under those of its VMIDs that it has entered a guest under, and under no
//! other. An invalidation of the core's is no event: it is what processors do about it that counts.

use core::sync::atomic::{AtomicU64, Ordering};

use mayfly_hwtrace::{Event, Scope};
use mayfly_vm::platform::address::Pfn;
use mayfly_vm::platform::tlb::Vmid;

use super::shared;
use super::this_cpu::asid_bits;
use crate::bare::processor::trace::note;
use crate::bare::processor::{cpu, cpus};

/// `TLB_CONTROL` of an entry that flushes all ASIDs; any other but 0 flushes the guest's own (APM volume 2, 15.16.1).
const ALL: u32 = 1;

/// ASIDs at most, so that those of a processor are the bits of a word.
const MOST_BITS: u32 = 6;

/// Whether guests may go past the caches.
pub(crate) const CACHES_MAINTAINED: bool = false;

/// The ASIDs under which each processor has entered a guest since it last flushed them.
static ENTERED: [AtomicU64; cpus::MAX] = [const { AtomicU64::new(0) }; cpus::MAX];

/// How many invalidations a trace has.
static INVALIDATIONS: AtomicU64 = AtomicU64::new(0);

/// Why no trace is kept.
pub(crate) fn refused() -> Option<&'static str> {
    let has_more = asid_bits(shared::get().features) > MOST_BITS;
    has_more.then_some("no trace is kept of a processor with 128 ASIDs or more")
}

/// The VMID of a processor that stands for an ASID.
fn of(cpu: usize, asid: u16) -> u16 {
    (cpu as u16) << MOST_BITS | asid
}

/// Calls `keep` with what a trace says of an event of the core's.
pub(crate) fn each(event: Event, mut keep: impl FnMut(Event)) {
    let all = |asid| (0..cpus::count() as usize).map(move |cpu| of(cpu, asid));
    match event {
        Event::VmidTake { vmid, generation } => {
            all(vmid).for_each(|vmid| keep(Event::VmidTake { vmid, generation }));
        }
        Event::VmidKeep { vmid, generation } => {
            all(vmid).for_each(|vmid| keep(Event::VmidKeep { vmid, generation }));
        }
        Event::VmidGive { vmid } => all(vmid).for_each(|vmid| keep(Event::VmidGive { vmid })),
        other => keep(other),
    }
}

/// A guest is about to translate by the root at `top`, under `vmid`, as ASID. VMRUN flushes as `tlb_control` says, before the guest's
/// first walk. Out of line: most runs keep no trace.
#[cold]
#[inline(never)]
pub(crate) fn enters(top: Pfn, Vmid(asid): Vmid, tlb_control: u32) {
    let cpu = cpu::number();
    let entered = &ENTERED[cpu];
    let (before, own) = (entered.load(Ordering::Relaxed), 1 << asid);
    let flushed = match tlb_control {
        0 => 0,
        ALL => before,
        _ => before & own,
    };
    let issues = || INVALIDATIONS.fetch_add(1, Ordering::Relaxed) + 1;
    let mut last = None;
    for asid in (0..1 << MOST_BITS).filter(|asid| flushed >> asid & 1 != 0) {
        let (id, vmid, scope) = (issues(), of(cpu, asid), Scope::All);
        note(|| Event::Tlbi { id, vmid, scope });
        last = Some(id);
    }
    if let Some(id) = last {
        note(|| Event::Sync { id });
    }
    entered.store(before & !flushed | own, Ordering::Relaxed);
    note(|| Event::Enter { tlb: cpu as u32, top: top.get(), vmid: of(cpu, asid) });
}

/// It no longer does.
#[cold]
#[inline(never)]
pub(crate) fn leaves(Vmid(asid): Vmid) {
    let cpu = cpu::number();
    note(|| Event::Leave { tlb: cpu as u32, vmid: of(cpu, asid) });
}
