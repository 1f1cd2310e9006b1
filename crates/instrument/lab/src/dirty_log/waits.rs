//! A machine's platform that tells each thread how long it has waited for others.

use std::sync::Arc;
use std::time::Instant;

use mayfly_machine::Hardware;
use mayfly_platform::address::Pfn;
use mayfly_platform::frames::Frames;
use mayfly_platform::memory::OutOfMemory;
use mayfly_platform::sync::{AtomicU32, AtomicU64};
use mayfly_platform::tlb::{Scope, Tlb, TlbToken, Vmid};
use mayfly_platform::{Platform, time};
use mayfly_record::nanoseconds;

use super::stall::waited;

/// The platform. A wait counts as long as it lasts on the clock.
#[derive(Debug)]
pub(super) struct Waits(pub(super) Arc<Hardware>);

fn timed(wait: impl FnOnce()) {
    let start = Instant::now();
    wait();
    waited(nanoseconds(start.elapsed()));
}

// SAFETY: passes every call on to the hardware, which keeps the promises.
unsafe impl mayfly_platform::Layer for Waits {
    type Below = Hardware;

    fn below(&self) -> &Hardware {
        &self.0
    }

    fn wait(&self, word: &AtomicU32, expected: u32) {
        timed(|| Platform::wait(&*self.0, word, expected));
    }

    fn wait_until(&self, word: &AtomicU32, expected: u32, deadline: time::Instant) {
        timed(|| Platform::wait_until(&*self.0, word, expected, deadline));
    }
}

// SAFETY: passes every call on to the hardware, which keeps the promises.
unsafe impl Frames for Waits {
    fn allocate(&self, order: u32) -> Result<Pfn, OutOfMemory> {
        self.0.allocate(order)
    }

    unsafe fn free(&self, first: Pfn, order: u32) {
        // SAFETY: as the caller promises.
        unsafe { self.0.free(first, order) };
    }

    fn linear_map(&self) -> *const AtomicU64 {
        self.0.linear_map()
    }
}

// SAFETY: passes all on to the machine's.
unsafe impl Tlb for Waits {
    fn tlbs(&self) -> usize {
        Tlb::tlbs(&*self.0)
    }

    fn issue(&self, vmid: Vmid, scope: Scope) -> TlbToken {
        self.0.issue(vmid, scope)
    }

    fn complete(&self, token: TlbToken) {
        self.0.complete(token);
    }

    fn vacate(&self, cpu: u32, vmid: Vmid) {
        self.0.vacate(cpu, vmid);
    }

    fn invalidate_all_vmids(&self) {
        self.0.invalidate_all_vmids();
    }
}
