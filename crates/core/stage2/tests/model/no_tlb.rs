//! TLBs of a machine on which no guest runs.

use mayfly_platform::tlb::{Scope, Tlb, TlbToken, Vmid};

/// Remembers nothing, for no CPU is in a guest.
pub(crate) struct NoTlb;

// SAFETY: nobody walks the tables but the core.
unsafe impl Tlb for NoTlb {
    fn issue(&self, _: Vmid, _: Scope) -> TlbToken {
        TlbToken(0)
    }

    fn complete(&self, _: TlbToken) {}

    fn invalidate_all_vmids(&self) {}
}
