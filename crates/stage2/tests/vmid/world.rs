//! A platform with TLBs that a test looks into.

use std::sync::Arc;

use mayfly_platform::address::Pfn;
use mayfly_platform::frames::Frames;
use mayfly_platform::memory::OutOfMemory;
use mayfly_platform::sync::AtomicU64;
use mayfly_platform::tlb::{Scope, Tlb, TlbToken, Vmid};
use mayfly_platform::{Layer, Mmu, Platform};

/// `P`, whose TLBs forget everything in `forget`.
struct World<P, F> {
    platform: P,
    forget: F,
}

/// `platform`, with TLBs that forget everything in `forget`.
pub(crate) fn mmu(
    platform: impl Platform + 'static,
    forget: impl Fn() + Send + Sync + 'static,
) -> Arc<dyn Mmu> {
    Arc::new(World { platform, forget })
}

// SAFETY: passes the calls that promise something on.
unsafe impl<P: Platform, F: Send + Sync> Layer for World<P, F> {
    type Below = P;

    fn below(&self) -> &P {
        &self.platform
    }
}

// SAFETY: gives nothing.
unsafe impl<P: Send + Sync, F: Send + Sync> Frames for World<P, F> {
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
unsafe impl<P: Send + Sync, F: Fn() + Send + Sync> Tlb for World<P, F> {
    fn issue(&self, _vmid: Vmid, _scope: Scope) -> TlbToken {
        unreachable!("invalidating one VMID is the caller's");
    }

    fn complete(&self, _token: TlbToken) {
        unreachable!("invalidating one VMID is the caller's");
    }

    fn invalidate_all_vmids(&self) {
        (self.forget)();
    }
}
