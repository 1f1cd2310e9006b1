//! What manuals allow TLBs, and most processors do seldom.

use std::any::TypeId;

use bitflags::bitflags;
use mayfly_stage2::{Ept, Format, Npt, Sv39x4, Sv48x4};

bitflags! {
    /// How far the machine goes in what the manuals allow a processor, and a platform. All of it, unless the user says
    /// otherwise: what works here does not rest on how processors happen to be built.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Rigour: u8 {
        /// An access that a remembered leaf does not allow faults, without a look at the table, which may allow it by
        /// now.
        ///
        /// On Arm the leaf stays, and faults again, until it is invalidated: only entries that give a translation, an
        /// address-size or an access-flag fault are never in a TLB (DDI 0487, "TLB maintenance requirements and the TLB
        /// maintenance instructions"). So on RISC-V (Privileged Architecture, "Virtual Address Translation Process":
        /// what an address-translation cache holds may be used until the fence). On x86 the fault drops it: Intel SDM,
        /// volume 3C, "Operations that Invalidate Cached Mappings", of EPT violations; AMD's manual, volume 2,
        /// "Translation-Lookaside Buffer", of page faults.
        const TRUSTS_LEAVES = 1 << 0;
        /// That there is nothing is remembered too, until it is invalidated: on RISC-V without Svvptc, which is the
        /// extension that bounds this. Arm and x86 rule it out.
        const KEEPS_ABSENT = 1 << 1;
        /// The tables on the way are remembered, and walks begin at the lowest that is.
        const KEEPS_TABLES = 1 << 2;
        /// An invalidation by address forgets what lies at the addresses, [`Span::stride`] apart, and of that what
        /// [`Span::entries`] says: on Arm the level hint of `FEAT_TTL` is followed, and walk caches are spared by an
        /// invalidation of the last level; on RISC-V a fence by address orders leaves alone. Intel has no invalidation
        /// by address, and is held to the same.
        ///
        /// [`Span::stride`]: mayfly_platform::tlb::Span::stride
        /// [`Span::entries`]: mayfly_platform::tlb::Span::entries
        const FOLLOWS_HINTS = 1 << 3;
        /// [`Platform::wait`](mayfly_platform::Platform::wait) returns early now and then.
        const WAKES_EARLY = 1 << 4;
        /// Walks find an entry that was written only after a barrier that orders walks: by the writer, before it goes
        /// into a guest; by the CPU that walks, before it does; or by the thread that invalidates. So on Arm (DDI 0487, "Ordering of
        /// memory accesses from translation table walks") and RISC-V (Privileged Architecture, "Hypervisor
        /// Memory-Management Fence Instructions"); on x86 a locked write is found by all that comes after it. Of a
        /// [`Machine`](crate::Machine)'s VMs, those that are created while it is asked for.
        const WALKS_LATE = 1 << 5;
        /// When a guest is left, the CPU goes on to walk from the root that its translation base register names, until
        /// it names none or another, whatever has become of the tables.
        ///
        /// RISC-V allows that: `hgatp` "is considered active ... unless the effective privilege mode is U and
        /// hstatus.HU=0" (Privileged Architecture, "Hypervisor Guest Address Translation and Protection Register").
        /// Arm does not; Cortex-A76, A57, A72, A55 do it nevertheless (errata 1165522, 1319537, 1319367, 1530923). x86
        /// CPUs of the machine never do.
        const WALKS_OUTSIDE = 1 << 6;
        /// A guest looks at what is asked of its vCPU once, when it is entered; what is asked later reaches it by an
        /// interrupt of its CPU alone ([`Platform::interrupt`](mayfly_platform::Platform::interrupt)).
        const NEEDS_INTERRUPTS = 1 << 7;
    }
}

/// Whether CPUs with format `F` drop a leaf that did not allow an access. What the machine knows of its own, lest the
/// core's idea of it be all that there is.
pub(super) fn drops_what_faulted<F: Format>() -> bool {
    is::<F>([TypeId::of::<Ept>(), TypeId::of::<Npt>()])
}

/// Whether CPUs with format `F` may remember that there is nothing.
pub(super) fn may_keep_absent<F: Format>() -> bool {
    is::<F>([TypeId::of::<Sv39x4>(), TypeId::of::<Sv48x4>()])
}

/// Whether CPUs with format `F` may walk when they are in no guest.
pub(super) fn may_walk_outside<F: Format>() -> bool {
    !is::<F>([TypeId::of::<Ept>(), TypeId::of::<Npt>()])
}

/// Whether a TLB of CPUs with format `F` tells two vCPUs of a VM apart by itself: Intel's does, by the VPID.
pub(super) fn tells_vcpus_apart<F: Format>() -> bool {
    TypeId::of::<F>() == TypeId::of::<Ept>()
}

/// Whether walks of CPUs with format `F` may miss what was written, until there is a barrier.
pub(crate) fn may_walk_late<F: Format>() -> bool {
    !is::<F>([TypeId::of::<Ept>(), TypeId::of::<Npt>()])
}

/// What is left out, so that it can be seen what comes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOut {
    /// Nothing.
    Nothing,
    /// The barrier before the guest.
    EntryBarrier,
    /// The barrier before an invalidation.
    IssueBarrier,
    /// The flush for which the core asks where another vCPU was before ([`Base::flush`](mayfly_vm::Base::flush)).
    Flush,
    /// Interrupts of CPUs.
    Interrupt,
    /// The invalidation after one that may be complete too early
    /// ([`Processors::completes_early`](crate::Processors::completes_early)).
    Repeat,
}

fn is<F: Format>(formats: [TypeId; 2]) -> bool {
    formats.contains(&TypeId::of::<F>())
}
