//! A VM all of whose memory goes over to something else at once.

use core::ops::{Deref, Range};

use mayfly_memslot::{AddressSpace, Gfn, Slot};
use mayfly_stage2::{Announcement, Invalidation, Retiring, Tables};

use crate::World;
use crate::vm::{Inner, Vm};

/// What [`Vm::invalidate_all`] has begun. Dropped, it ends: then faults map again, and only after that the tables that are out
/// of use go to the [reclaimer](mayfly_stage2::Reclaimer). So nobody waits for what the reclaimer does.
#[must_use = "dropped at once, it ends before the host has changed anything"]
pub struct GoingOver<'a, W: World> {
    invalidation: Invalidation<'a>,
    /// Dropped last.
    _old: Option<Retiring<'a, W::Format>>,
}

impl<W: World> Deref for GoingOver<'_, W> {
    type Target = Announcement;

    fn deref(&self) -> &Announcement {
        &self.invalidation
    }
}

impl<W: World> Vm<W> {
    /// The host is about to change all of the guest's memory: what it is behind, or what may be done with it. When this
    /// returns, no CPU uses what the VM had mapped, and what was written past the caches is in memory. No fault maps
    /// anything until what this returns is dropped, which the host does when the change is made.
    ///
    /// What is mapped is not visited, but for what is mapped past the caches: every root is replaced by an
    /// empty one, and the [reclaimer](mayfly_stage2::Reclaimer) frees the old ones. No TLB is asked either: what TLBs
    /// remember is under VMIDs under which no vCPU runs any more. Where there is no memory for fresh roots, everything is
    /// zapped, which comes to the same and takes longer.
    ///
    /// Waits for vCPUs that are in the guest to come out. Must not be called from inside
    /// [`HostMemory::resolve`](crate::HostMemory::resolve).
    pub fn invalidate_all(&self) -> GoingOver<'_, W> {
        let vm = self.inner();
        let all = Gfn::new(0)..Gfn::new(u64::MAX);
        let invalidation = vm.stage2.begin_invalidation(&all);
        // What no fault has mapped by now none maps before the end.
        let old = vm.leave_roots(vm.may_have_past_caches());
        if old.is_none() {
            vm.flush_written(all.clone());
            vm.stage2.zap(&invalidation, all, Tables::Free, vm.slice);
        }
        vm.has_nothing_past_caches();
        GoingOver { invalidation, _old: old }
    }
}

impl<W: World> Inner<W> {
    /// Has the guest go on over empty roots, inside an invalidation of what is not to be mapped again. When this returns,
    /// no vCPU is on the old ones, and what was written past the caches through them is in memory, if something may be
    /// (`is_written`). Returns the old ones, which are the reclaimer's when that is dropped; none where there is no memory for
    /// fresh roots, or none are made any more.
    pub(crate) fn leave_roots(&self, is_written: bool) -> Option<Retiring<'_, W::Format>> {
        let old = self.stage2.replace_roots().ok()?;
        self.reload_roots();
        old.wait_left();
        // Of the old roots, through which no vCPU writes any more.
        if is_written {
            self.flush_few_written(self.slotted());
        }
        Some(old)
    }

    /// Frames between which all are that something may be mapped at: those of the slots, and of one that is being taken away.
    /// Inside an invalidation of all of them the slots stay as they are.
    fn slotted(&self) -> Range<Gfn> {
        let section = self.srcu.read_lock();
        let spaces = [AddressSpace::Main, AddressSpace::Smm];
        let slots = spaces.iter().flat_map(|&space| self.slots.load(space, &section).iter());
        let leaving = self.leaving.lock(&*self.platform);
        let all = slots.chain(leaving.as_ref()).map(Slot::gfns);
        let hull =
            |one: Range<Gfn>, other: Range<Gfn>| one.start.min(other.start)..one.end.max(other.end);
        all.reduce(hull).unwrap_or(Gfn::new(0)..Gfn::new(0))
    }
}
