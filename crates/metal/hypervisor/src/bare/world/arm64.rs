//! TLBs, caches and copies on arm64.

use core::iter;
use core::sync::atomic::{AtomicU64, Ordering};

use mayfly_arm64::cache::{self, Caches};
pub(super) use mayfly_arm64::copy;
use mayfly_arm64::tlb;
use mayfly_hwtrace::steps::invalidation;
use mayfly_hwtrace::{Barrier, Event};
use mayfly_vm::platform::address::Pfn;
use mayfly_vm::platform::cache::{Cache, CacheCapabilities};
use mayfly_vm::platform::tlb::{Scope, Tlb, TlbToken, Vmid};

use super::platform::World;
use crate::bare::processor::cpu::number;
use crate::bare::processor::this_cpu::{vacate_all, vacate_here};
use crate::bare::processor::{shared, trace};
use crate::bare::threads::interrupts::look;

/// The number of this machine's TLBs.
pub(crate) const MACHINE: usize = 1;

/// Invalidations that the TLBs of guests were told.
static INVALIDATIONS: AtomicU64 = AtomicU64::new(0);

/// Does `work`, which makes TLBs forget something completely, behind a barrier.
fn invalidate(id: u64, work: impl FnOnce(), event: impl FnOnce() -> Event) {
    trace::note(|| Event::Barrier { kind: Barrier::Walks });
    trace::of(work, event);
    trace::note(|| Event::Sync { id });
}

// SAFETY: invalidations are broadcast to all processors, and complete when `issue` returns.
unsafe impl Tlb for World {
    /// Worlds differ in the share that frames are taken of; the machine is one.
    fn tlbs(&self) -> usize {
        MACHINE
    }

    fn issue(&self, vmid: Vmid, scope: Scope) -> TlbToken {
        let id = INVALIDATIONS.fetch_add(1, Ordering::Relaxed);
        invalidate(
            id,
            || shared::get().empty.invalidate(vmid, &scope),
            || invalidation(id, vmid, &scope),
        );
        TlbToken(0)
    }

    fn complete(&self, _token: TlbToken) {}

    fn vacate(&self, cpu: u32, vmid: Vmid) {
        if cpu as usize == number() {
            vacate_here(vmid);
        } else {
            self.vacate_all(&mut iter::once(cpu), vmid);
        }
    }

    fn vacate_all(&self, cpus: &mut dyn Iterator<Item = u32>, vmid: Vmid) {
        vacate_all(cpus, vmid);
        // It has waited for others.
        look();
    }

    fn invalidate_all_vmids(&self) {
        let id = INVALIDATIONS.fetch_add(1, Ordering::Relaxed);
        invalidate(id, tlb::invalidate_all_vmids, || Event::TlbiEverything { id });
    }
}

/// Does `work` to frames, and looks for interrupts between parts of them. The thread keeps its processor meanwhile: the
/// core may hold an entry frozen.
fn in_parts(first: Pfn, count: u64, work: impl Fn(Pfn, u64)) {
    const PART: u64 = 8;
    let end = first.get() + count;
    for part in (first.get()..end).step_by(PART as usize) {
        work(Pfn::new(part), (end - part).min(PART));
        look();
    }
}

impl World {
    /// Cleans what is at these addresses, for a guest that reads it past the caches.
    pub(crate) fn clean_bytes(start: u64, bytes: u64) {
        cache::clean_bytes(start, bytes);
    }
}

// SAFETY: asks `Caches`, for each frame.
unsafe impl Cache for World {
    fn capabilities(&self) -> CacheCapabilities {
        Caches.capabilities()
    }

    fn clean(&self, first: Pfn, count: u64) {
        let work = || in_parts(first, count, |first, count| Caches.clean(first, count));
        trace::of(work, || Event::Clean { frame: first.get(), count });
    }

    fn clean_invalidate(&self, first: Pfn, count: u64) {
        let work = || in_parts(first, count, |first, count| Caches.clean_invalidate(first, count));
        trace::of(work, || Event::Flush { frame: first.get(), count });
    }

    fn invalidate_instructions(&self, first: Pfn, count: u64) {
        // In one part: for more lines than a bound, one instruction invalidates them all.
        let work = || Caches.invalidate_instructions(first, count);
        trace::of(work, || Event::Fetch { frame: first.get(), count });
    }

    fn invalidate_all_instructions(&self) {
        Caches.invalidate_all_instructions();
    }
}
