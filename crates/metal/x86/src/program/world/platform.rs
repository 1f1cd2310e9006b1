//! What the core asks of its surroundings, on one CPU with one flow of control.
//!
//! Whoever waits here would wait for themselves: nothing else runs that could change a word. The core waits for vCPUs in
//! their guests, for readers and for TLBs, and each of these is over when any code of the host's runs.
//!
//! TLBs are told by a flag. No guest is in its CPU while the host runs, so an invalidation is complete when it is noted that
//! the next entry flushes: whichever guest is next entered, under whichever ASID, all of them are flushed by that entry
//! (`TLB_CONTROL` is 1), before it walks anything.

use alloc::sync::Arc;
use core::num::NonZeroU64;

use mayfly_vm::platform::address::Pfn;
use mayfly_vm::platform::cache::{Cache, CacheCapabilities, InstructionCaches};
use mayfly_vm::platform::frames::Frames;
use mayfly_vm::platform::memory::OutOfMemory;
use mayfly_vm::platform::sync::{AtomicU32, AtomicU64, Ordering};
use mayfly_vm::platform::time::Instant;
use mayfly_vm::platform::tlb::{Scope, Tlb, TlbToken, Vmid};
use mayfly_vm::platform::{Context, Identity, Platform, ReaderBarrier};
use mayfly_x86::svm::flush::Outdated;

use super::frames;
use crate::program::processor::timer;

/// The machine's TLBs.
pub(crate) const MACHINE: usize = 1;

/// Whether the next entry into a guest flushes all TLBs.
pub(crate) static OUTDATED: Outdated = Outdated::new();

/// What the core runs in here.
#[derive(Debug)]
pub(crate) struct World;

impl World {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self)
    }
}

// SAFETY: readers execute a fence; there is one context.
unsafe impl Platform for World {
    fn identity(&self) -> Identity {
        Identity::new(1)
    }

    fn wait(&self, word: &AtomicU32, expected: u32) {
        assert!(
            word.load(Ordering::Acquire) != expected,
            "the machine's only flow of control would wait for itself"
        );
    }

    fn wait_until(&self, word: &AtomicU32, expected: u32, deadline: Instant) {
        while word.load(Ordering::Acquire) == expected && self.now() < deadline {
            core::hint::spin_loop();
        }
    }

    fn wake(&self, _word: &AtomicU32) {}

    fn now(&self) -> Instant {
        Instant::from_nanos(timer::rate().nanoseconds(timer::ticks()))
    }

    fn reader_barrier(&self) -> ReaderBarrier {
        ReaderBarrier::Fenced
    }

    fn heavy_barrier(&self) {
        unreachable!("readers are fenced");
    }

    fn context(&self) -> Option<Context> {
        Some(Context::new(NonZeroU64::MIN))
    }
}

// SAFETY: frames are given to one owner at a time, zeroed, and mapped where their number says.
unsafe impl Frames for World {
    fn allocate(&self, order: u32) -> Result<Pfn, OutOfMemory> {
        frames::take(order).ok_or(OutOfMemory)
    }

    unsafe fn free(&self, first: Pfn, order: u32) {
        // SAFETY: the caller's promise.
        unsafe { frames::put(first, order) };
    }

    fn linear_map(&self) -> *const AtomicU64 {
        core::ptr::with_exposed_provenance(0)
    }
}

// SAFETY: the page's beginning says why an invalidation is complete as soon as it is noted.
unsafe impl Tlb for World {
    fn tlbs(&self) -> usize {
        MACHINE
    }

    fn issue(&self, _vmid: Vmid, _scope: Scope) -> TlbToken {
        OUTDATED.note();
        TlbToken(0)
    }

    /// Everything is flushed, however much is asked.
    fn max_by_address(&self) -> u64 {
        0
    }

    fn complete(&self, _token: TlbToken) {}

    fn invalidate_all_vmids(&self) {
        OUTDATED.note();
    }
}

// SAFETY: caches of this architecture are coherent for guests (`Format::COHERENT`).
unsafe impl Cache for World {
    fn capabilities(&self) -> CacheCapabilities {
        CacheCapabilities { instructions: InstructionCaches::Coherent, ..Default::default() }
    }

    fn clean(&self, _first: Pfn, _count: u64) {}

    fn clean_invalidate(&self, _first: Pfn, _count: u64) {}

    fn invalidate_instructions(&self, _first: Pfn, _count: u64) {}

    fn invalidate_all_instructions(&self) {}
}
