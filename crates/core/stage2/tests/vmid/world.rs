//! A platform with TLBs that a test looks into.

use std::sync::Arc;

use mayfly_platform::address::Pfn;
use mayfly_platform::frames::Frames;
use mayfly_platform::memory::OutOfMemory;
use mayfly_platform::sync::{AtomicU32, AtomicU64};
use mayfly_platform::tlb::{Scope, Tlb, TlbToken, Vmid};
use mayfly_platform::{Layer, Mmu, Platform};

/// What a test sees happen.
pub(crate) trait Hooks: Send + Sync + 'static {
    /// All TLBs forget everything.
    fn forget(&self);

    /// `cpu` walks from the root under `vmid` no more.
    fn vacate(&self, cpu: u32, vmid: Vmid);

    /// Nor does any of `cpus`, which are asked at once.
    fn vacate_all(&self, cpus: &mut dyn Iterator<Item = u32>, vmid: Vmid) {
        for cpu in cpus {
            self.vacate(cpu, vmid);
        }
    }
}

/// `P`, with so many CPUs, whose TLBs are `H`'s.
struct World<P, H> {
    platform: P,
    cpus: u32,
    hooks: H,
}

/// `platform`, with so many CPUs, whose TLBs are those of `hooks`.
pub(crate) fn mmu(platform: impl Platform + 'static, cpus: u32, hooks: impl Hooks) -> Arc<dyn Mmu> {
    Arc::new(World { platform, cpus, hooks })
}

// SAFETY: passes the calls that promise something on.
unsafe impl<P: Platform, H: Hooks> Layer for World<P, H> {
    type Below = P;

    fn below(&self) -> &P {
        &self.platform
    }

    fn cpus(&self) -> u32 {
        self.cpus
    }

    fn wait(&self, _word: &AtomicU32, _expected: u32) {
        panic!("a thread gives its CPU up while it activates a root there");
    }
}

// SAFETY: gives nothing.
unsafe impl<P: Send + Sync, H: Hooks> Frames for World<P, H> {
    fn allocate(&self, _order: u32) -> Result<Pfn, OutOfMemory> {
        unreachable!("VMIDs need no frames");
    }

    unsafe fn free(&self, _first: Pfn, _order: u32) {
        unreachable!("VMIDs need no frames");
    }

    fn linear_map(&self) -> *const AtomicU64 {
        unreachable!("VMIDs need no frames");
    }
}

// SAFETY: there are no tables.
unsafe impl<P: Send + Sync, H: Hooks> Tlb for World<P, H> {
    fn issue(&self, _vmid: Vmid, _scope: Scope) -> TlbToken {
        unreachable!("invalidating one VMID is the caller's");
    }

    fn complete(&self, _token: TlbToken) {
        unreachable!("invalidating one VMID is the caller's");
    }

    fn vacate(&self, cpu: u32, vmid: Vmid) {
        self.hooks.vacate(cpu, vmid);
    }

    fn vacate_all(&self, cpus: &mut dyn Iterator<Item = u32>, vmid: Vmid) {
        self.hooks.vacate_all(cpus, vmid);
    }

    fn invalidate_all_vmids(&self) {
        self.hooks.forget();
    }
}
