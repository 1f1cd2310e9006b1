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
    /// What is remembered of some guest frames.
    Range(Span),
    /// All that is remembered under the VMID.
    All,
}

/// Guest frames, and what is to be forgotten of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The frames; both ends are multiples of `stride`, and the first comes before the second.
    pub gfns: Range<Gfn>,
    /// How many pages lie between two invalidations by address, a power of two: no leaf that is to be forgotten is
    /// smaller. So an invalidation at each of [`Span::addresses`] reaches them all.
    pub stride: u64,
    /// What else is known of it.
    pub entries: Entries,
}

/// Which entries of tables the translations come from that are to be forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entries {
    /// Leaves of exactly [`Span::stride`] pages, and nothing else. (Arm: the one case in which `FEAT_TTL`'s level hint
    /// may be given, and an invalidation of the last level is enough: `TLBI IPAS2LE1IS`.)
    Leaves,
    /// Leaves of that many pages or more. (Arm: no hint; the last level is enough. RISC-V: `HFENCE.GVMA` by address.)
    LeavesOfAnySize,
    /// Leaves likewise, and tables, which walk caches may hold. (Arm: `TLBI IPAS2E1IS`, no hint. RISC-V: the fence of
    /// the whole VMID, for by address it orders leaves alone: Privileged Architecture, "Hypervisor Memory-Management
    /// Fence Instructions".)
    Any,
}

impl Span {
    /// Pages and whatever else is remembered of `gfns`: what is right always, and costs most.
    pub const fn pages(gfns: Range<Gfn>) -> Self {
        Self { gfns, stride: 1, entries: Entries::Any }
    }

    /// How many invalidations by address it takes.
    pub const fn count(&self) -> u64 {
        (self.gfns.end.get() - self.gfns.start.get()).div_ceil(self.stride)
    }

    /// Where those are.
    pub fn addresses(&self) -> impl Iterator<Item = Gfn> {
        let first = self.gfns.start.get();
        let stride = self.stride;
        (0..self.count()).map(move |number| Gfn::new(first + number * stride))
    }

    /// Whether one of the addresses lies in `gfns`.
    pub fn reaches(&self, gfns: &Range<Gfn>) -> bool {
        let start = self.gfns.start.get();
        // The first that does not lie before them.
        let address = start + gfns.start.get().saturating_sub(start).next_multiple_of(self.stride);
        address < self.gfns.end.get().min(gfns.end.get())
    }

    /// Whether a leaf that maps `gfns` is forgotten by a TLB that does no more than it is told.
    pub fn forgets_leaf(&self, gfns: &Range<Gfn>) -> bool {
        let pages = gfns.end.get() - gfns.start.get();
        (self.entries != Entries::Leaves || pages == self.stride) && self.reaches(gfns)
    }
}

/// Names invalidations that were issued: all those that one thread issued up to then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an invalidation that is not completed may not have happened"]
pub struct TlbToken(pub u64);

/// The TLBs of all CPUs, walk caches included.
///
/// An invalidation covers what a translation consists of: stage-2 entries, the tables above them where [`Entries::Any`]
/// says so, and the combined stage-1-and-2 entries that were made from them. It also orders: what its issuer wrote to
/// the tables before, and what it has read there of others' writes, is what CPUs walk afterwards.
///
/// On Arm, `issue` and `complete` together are: `DSB ISH`, so that walks find what was written; `TLBI IPAS2E1IS`, or
/// `IPAS2LE1IS`, at each of [`Span::addresses`]; `DSB ISH`; `TLBI VMALLE1IS`, for combined entries know no intermediate
/// address; `DSB ISH`; `ISB`. For [`Scope::All`]: `DSB ISH`, `TLBI VMALLS12E1IS`, `DSB ISH`, `ISB`. The first is no
/// `DSB ISHST`: the core also invalidates for changes that it has only loaded, which were another CPU's, and a barrier
/// of stores does not order that load before the `TLBI` (`stage2`'s `litmus/S2+met+flush`). All of them take the VMID
/// from `VTTBR_EL2`. On parts whose `DSB` may be over while accesses by what was invalidated are under way (errata 1286807
/// of Cortex-A76, 2441007 of Cortex-A55, 2441009 of Cortex-A510; Linux: `ARM64_WORKAROUND_REPEAT_TLBI`), one more broadcast
/// `TLBI`, whichever, and its `DSB ISH` come before `complete` and `invalidate_all_vmids` return. With Intel's EPT there is
/// no invalidation by address: `INVEPT` of the context, whatever the scope.
///
/// What one CPU keeps to itself, and faults by, is not asked of this trait: it is forgotten where the vCPU enters its
/// guest again, there and on no other CPU.
///
/// # Safety
///
/// The core frees tables, and the host gives frames to others, when this says that no CPU uses them any more:
///
/// - When [`complete`](Tlb::complete) has returned, what its documentation says is so, for every invalidation of the
///   token; and when [`invalidate_all_vmids`](Tlb::invalidate_all_vmids) has, no CPU has anything from before.
///
/// To invalidate more, or sooner, is as good. An implementation without `unsafe` could have CPUs walk freed memory:
///
/// ```compile_fail,E0200
/// use mayfly_platform::tlb::{Scope, Tlb, TlbToken, Vmid};
///
/// struct Forgetful;
///
/// impl Tlb for Forgetful {
///     fn issue(&self, _: Vmid, _: Scope) -> TlbToken {
///         TlbToken(0)
///     }
///
///     fn complete(&self, _: TlbToken) {}
///
///     fn invalidate_all_vmids(&self) {}
/// }
/// ```
pub unsafe trait Tlb: Send + Sync {
    /// Which TLBs these are: a number that two values have in common only if they stand for the same CPUs, so that an
    /// invalidation by either reaches what guests of the other use, and a CPU finds a frame of either by its number.
    /// VMIDs of one are then those of the other. Never changes. The default is the value's address, so that each value
    /// has TLBs of its own.
    fn tlbs(&self) -> usize {
        core::ptr::from_ref(self).cast::<()>().addr()
    }

    /// Begins to invalidate `scope` of `vmid` on every CPU. Does not wait.
    fn issue(&self, vmid: Vmid, scope: Scope) -> TlbToken;

    /// The most invalidations by address that one [`Scope::Range`] may take: where it would take more,
    /// [`Scope::All`] is asked for, since that many would take longer, and what else the VMID has in TLBs is refilled
    /// in passing. 0 where there are none by address. The default is 512, Linux's line on arm64 (`MAX_DVM_OPS`,
    /// `arch/arm64/include/asm/tlbflush.h`).
    fn max_by_address(&self) -> u64 {
        512
    }

    /// Returns when the invalidations of `token` have taken effect: no CPU uses, or has an access under way that uses,
    /// what was invalidated. A CPU that is not in a guest is not waited for.
    fn complete(&self, token: TlbToken);

    /// Has CPU `cpu`, if its translation base register names a root under `vmid`, name none, so that it makes no walk
    /// from that root any more, not even speculatively; what it has made is not forgotten. Returns when that is so.
    ///
    /// Called when a CPU gives up a root that it still names: with its own number, in
    /// [`VmidTag::activate`](../../mayfly_stage2/struct.VmidTag.html#method.activate), when another root is to be run;
    /// and with those of all CPUs that name it, by [`Tlb::vacate_all`], when the root is about to be freed. That CPU is in no guest under `vmid` then and will not
    /// be again, but it may be in one under another VMID, or about to be, and is left alone then. So what does this runs
    /// on that CPU (by an interrupt, for another's), and looks at its register first. A CPU that has left the root by
    /// itself since it was seen there may be on another one, to which a roll-over has given the VMID. It names none then:
    /// its guest's next access faults, and the guest is entered again.
    ///
    /// Needed where CPUs walk out of guests. Arm forbids that, and Cortex-A55, A57, A72, A76 and some others do it
    /// nevertheless (errata 1530923, 1319537, 1319367, 1165522): there an empty root with VMID 0 goes to `VTTBR_EL2`,
    /// and then an `ISB`. RISC-V allows it (Privileged Architecture, `hgatp`, which is active in HS-mode too): zero goes
    /// to `hgatp`. Intel and AMD have nothing of the kind. The default does nothing.
    fn vacate(&self, cpu: u32, vmid: Vmid) {
        let _ = (cpu, vmid);
    }

    /// As [`Tlb::vacate`], of several CPUs: asks all of them before it waits for the first. Takes each of `cpus` from the
    /// iterator when it is about to ask that CPU, and not before. Where CPUs look for what others ask of them, [`vacate`] has
    /// the protocol. The default asks one after the other.
    ///
    /// [`vacate`]: crate::vacate
    fn vacate_all(&self, cpus: &mut dyn Iterator<Item = u32>, vmid: Vmid) {
        for cpu in cpus {
            self.vacate(cpu, vmid);
        }
    }

    /// Forgets all that is remembered under any VMID, and completes: before VMIDs are given out anew.
    fn invalidate_all_vmids(&self);
}
