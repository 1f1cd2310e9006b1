//! Invalidation of what CPUs remember of page tables.

use core::ops::Range;

use crate::address::Gfn;

/// The tag of a root's translations in the TLBs of all CPUs (Arm and RISC-V: VMID; Intel: the EP4TA takes its place;
/// AMD: ASID).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vmid(pub u16);

/// What is to be forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// What is remembered of these guest frames, by whatever level of table.
    Range(Range<Gfn>),
    /// All that is remembered under the VMID.
    All,
}

/// Names invalidations that were issued: all those that one thread issued up to then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an invalidation that is not completed may not have happened"]
pub struct TlbToken(pub u64);

/// The TLBs of all CPUs, walk caches included.
///
/// An invalidation covers what a translation consists of: stage-2 entries, the tables above them, and the combined
/// stage-1-and-2 entries that were made from them. (Arm: `TLBI IPAS2E1IS`, `DSB ISH`, `TLBI VMALLE1IS`, `DSB ISH`; one
/// `TLBI VMALLS12E1IS` for [`Scope::All`].) It also orders: what its issuer wrote to the tables before is what CPUs
/// walk afterwards.
pub trait Tlb: Send + Sync {
    /// Begins to invalidate `scope` of `vmid` on every CPU. Does not wait.
    fn issue(&self, vmid: Vmid, scope: Scope) -> TlbToken;

    /// Returns when the invalidations of `token` have taken effect: no CPU uses, or has an access under way that uses,
    /// what was invalidated. A CPU that is not in a guest is not waited for.
    fn complete(&self, token: TlbToken);

    /// Forgets all that is remembered under any VMID, and completes: before VMIDs are given out anew.
    fn invalidate_all_vmids(&self);
}
