//! A fault: an access of the guest that found no translation, from the memslot to the entry.

use mayfly_memslot::{AddressSpace, Backing, Flags, Gfn, LastHit, Slot};
use mayfly_platform::Op;
use mayfly_platform::address::Pfn;
use mayfly_srcu::Section;
use mayfly_stage2::{
    Format, Grant, Leaf, Level, Mapped, MemoryType, Permissions, Role, Root, Seen,
};

use crate::vm::Inner;
use crate::world::{HostFault, HostMemory, Resolved};
use crate::{Access, Error, Requests, World};

/// What became of an attempt to map something.
enum Attempt {
    /// The page is there.
    Mapped(Mapped),
    /// The host has changed the page while it was asked, and is done with that.
    Changed,
    /// Something has changed about the page or block of this level, or is changing.
    Refused(Level),
}

/// What became of a fault.
pub(crate) enum Handled {
    /// The access can be made again, now or when what is asked of the vCPU is done.
    Resolved,
    /// It can be made again when the CPU has forgotten what it remembers of the page. Only where a TLB
    /// [may keep that](keeps_stale).
    Stale,
    /// The host has changed the page while it was asked, and is done with that: the access is to be looked at again.
    Changed,
    /// Something has changed about the page or block of this level, or is changing.
    Refused(Level),
}

/// Memory where an access goes.
pub(crate) struct Met<'a, W: World> {
    /// Sampled before the slots were looked at.
    seen: Seen,
    slot: &'a Slot<W::Backing>,
}

impl<W: World> Met<'_, W> {
    /// Whether the slot has a dirty log.
    #[inline]
    pub(crate) fn is_logged(&self) -> bool {
        self.slot.dirty().is_some()
    }
}

impl<W: World> Inner<W> {
    /// The memory that `access` is to, if it is to any, or to any that is written: otherwise it is a device's business.
    #[inline]
    pub(crate) fn meet<'a>(
        &'a self,
        access: &Access,
        last: &mut LastHit,
        section: &'a impl Section,
    ) -> Option<Met<'a, W>> {
        // Before the slots and the host are asked: what they say is good if the sequence is still the same.
        let seen = self.stage2.sample();
        let slots = self.slots.load(AddressSpace::Main, section);
        let slot = slots.find_near(access.gpa.gfn(), last)?;
        let is_read_only =
            access.wanted() == Permissions::WRITE && slot.flags().contains(Flags::READONLY);
        (!is_read_only).then_some(Met { seen, slot })
    }

    /// Maps the page of `access`, which has met memory in the same section, in the present root of `role`, however long
    /// it is: what lies in the next page faults by itself. In a block of `largest` at most.
    ///
    /// Takes no lock. Waits where another CPU is changing the very entry.
    // Not where accesses to devices go, which have no use for so many registers.
    #[inline(never)]
    pub(crate) fn handle_fault(
        &self,
        access: &Access,
        met: &Met<'_, W>,
        role: Role,
        largest: Level,
        section: &impl Section,
    ) -> Result<Handled, Error> {
        let (gfn, wanted) = (access.gpa.gfn(), access.wanted());
        let handled = |stale| if stale { Handled::Stale } else { Handled::Resolved };
        // Not the one that the guest ran on: that may be gone. Where there is none the vCPU does not go on.
        let Some(root) = self.stage2.find_root(role, section) else {
            return Ok(Handled::Resolved);
        };
        if self.is_settled(gfn, wanted, root, section) {
            return Ok(handled(keeps_stale::<W>(access)));
        }
        Ok(match self.map(gfn, wanted, met, root, largest, section)? {
            Attempt::Mapped(Mapped::Installed) => handled(W::Format::KEEPS_ABSENT),
            Attempt::Mapped(_) => handled(keeps_stale::<W>(access)),
            Attempt::Changed => Handled::Changed,
            Attempt::Refused(level) => Handled::Refused(level),
        })
    }

    /// Waits, as long as nothing is asked of the vCPU, until the host is done with what it is changing where a block of
    /// `refused` around `gfn` was. Not from inside a section: a caller that changes something need not wait for this.
    /// Returns the largest block to try next; none where something is asked.
    #[cold]
    pub(crate) fn wait_refused(
        &self,
        gfn: Gfn,
        refused: Level,
        requests: &Requests,
    ) -> Option<Level> {
        self.platform.charge(Op::FaultRefused);
        // The smaller it is, the less of what changes elsewhere is in its way, and the less is done in vain.
        let largest = refused.below().unwrap_or(Level::PAGE);
        let first = largest.first(gfn);
        let changing = first..Gfn::new(first.get() + largest.pages());
        let wait = || self.stage2.wait_invalidation_unless(&changing, || requests.any());
        requests.asleep(wait).then_some(largest)
    }

    /// Whether the host is changing something around `gfn`, and has left there, or put there by now, what the access
    /// needs: then the guest has but met an entry that was frozen at that moment, and the host is not asked.
    fn is_settled(
        &self,
        gfn: Gfn,
        wanted: Permissions,
        root: &Root<W::Format>,
        section: &impl Section,
    ) -> bool {
        let page = gfn..Gfn::new(gfn.get() + 1);
        self.stage2.is_invalidating(&page) && root.settles(gfn, wanted, section)
    }

    /// The largest block that is mapped. Where mapping cleans, what is refused was cleaned in vain, and the more there
    /// is to clean the likelier it is refused: so not more than a fault can do in between.
    pub(crate) fn largest(&self) -> Level {
        let largest = W::Format::LARGEST_BLOCK;
        if self.maintains_maps() { largest.min(Level::MIB2) } else { largest }
    }

    fn map(
        &self,
        gfn: Gfn,
        wanted: Permissions,
        &Met { seen, slot }: &Met<'_, W>,
        root: &Root<W::Format>,
        largest: Level,
        section: &impl Section,
    ) -> Result<Attempt, Error> {
        let backing = slot.backing_of(gfn).ok_or(HostFault::NotMapped)?;
        // Left where it is: what goes by `?` is copied a byte at a time.
        let resolved = self.memory.resolve(backing, wanted);
        let resolved = match &resolved {
            Ok(resolved) => resolved,
            Err(fault) => return Err((*fault).into()),
        };
        if resolved.changed {
            return Ok(Attempt::Changed);
        }
        let mut permissions = allowed(slot, resolved);
        if !permissions.contains(wanted) {
            // What the host said may be of a moment before it changed the page, or while it does.
            let page = gfn..Gfn::new(gfn.get() + 1);
            if !self.stage2.is_current(&page, seen) {
                return Ok(Attempt::Refused(Level::PAGE));
            }
            let is_fetch = wanted == Permissions::EXECUTE;
            let fault = if is_fetch { HostFault::NotExecutable } else { HostFault::ReadOnly };
            return Err(fault.into());
        }
        let (write, logs) = (wanted == Permissions::WRITE, slot.dirty().is_some());
        let is_cached = resolved.memory == MemoryType::WriteBack;
        let marks = root.role() == Role::MARKED && is_cached;
        if !write && (logs || marks) {
            permissions -= Permissions::WRITE;
        }
        if permissions.contains(Permissions::WRITE) {
            // Before the guest can write. The harvest that takes the mark has earlier faults refused, this one among
            // them if it has not come to the entry yet, and then write-protects the page before reading it.
            slot.mark_dirty(gfn);
        }
        let mut level = block_of(gfn, slot, resolved).min(largest);
        if marks {
            level = level.min(root.depth(gfn, section));
        }
        let mut leaf = Leaf { memory: resolved.memory, ..Leaf::new(resolved.pfn, permissions) };
        // SAFETY: the VM's memory has said so (`HostMemory`), of what is behind `gfn` and around it within the slot, and
        // no more rights than it said. It was asked after `seen` was sampled, and so were the slots. What it takes away,
        // it takes by an invalidation of every place where a slot has that, and a slot that goes is zapped.
        let grant = |level: Level, leaf: Leaf| unsafe {
            let into = gfn.get() - level.first(gfn).get();
            let pfn = Pfn::new(leaf.pfn.get().wrapping_sub(into));
            root.grant(gfn, level, Leaf { pfn, ..leaf }, seen, section)
        };
        if marks && write {
            if root.translate(gfn, section).is_some() {
                self.platform.charge(Op::TrackingFault);
            }
            // What is around it is going to be read, though only the page is written.
            let around = Leaf { permissions: permissions - Permissions::WRITE, ..leaf };
            if level > Level::PAGE
                && let refused @ Attempt::Refused(_) =
                    self.install(grant(level, around), backing, resolved, section)?
            {
                return Ok(refused);
            }
            (level, leaf.written) = (Level::PAGE, true);
        }
        if level == Level::PAGE
            && !(self.maintains_maps() && is_cached)
            && let Some(mapped) = grant(Level::PAGE, leaf).map_missing_page()
        {
            if mapped == Mapped::Retry {
                return Ok(Attempt::Refused(level));
            }
            self.platform.charge(Op::EntriesWritten(1));
            return Ok(Attempt::Mapped(mapped));
        }
        self.install(grant(level, leaf), backing, resolved, section)
    }

    /// The largest block around `gfn` that slot and host allow, with all rights that they allow; `None` if that is a page,
    /// or if the host cannot provide for it now. `seen` was sampled before.
    pub(crate) fn grant_block<'a>(
        &'a self,
        gfn: Gfn,
        seen: Seen,
        last: &mut LastHit,
        root: &'a Root<W::Format>,
        section: &'a impl Section,
    ) -> Option<Grant<'a, W::Format>> {
        let slots = self.slots.load(AddressSpace::Main, section);
        let slot = slots.find_near(gfn, last)?;
        let resolved = self.memory.resolve(slot.backing_of(gfn)?, Permissions::READ).ok()?;
        let level = block_of(gfn, slot, &resolved).min(self.largest());
        let first = level.first(gfn);
        let pfn = Pfn::new(resolved.pfn.get().checked_sub(gfn.get() - first.get())?);
        let permissions = allowed(slot, &resolved);
        let leaf = Leaf { memory: resolved.memory, ..Leaf::new(pfn, permissions) };
        (level > Level::PAGE).then(|| {
            // SAFETY: as in `map`, of all of the block.
            unsafe { root.grant(gfn, level, leaf, seen, section) }
        })
    }

    /// Puts what is granted in place, of what `backing` was resolved to: the block, or the page where that is too large;
    /// otherwise as [`Inner::map`].
    #[inline(never)]
    fn install(
        &self,
        mut grant: Grant<'_, W::Format>,
        backing: W::Backing,
        resolved: &Resolved,
        section: &impl Section,
    ) -> Result<Attempt, Error> {
        let mut level = grant.level();
        loop {
            let part = grant.part(level, Permissions::all());
            if self.maintains_maps() && self.ready_to_map(&part, resolved.clean, section)? {
                let first = part.leaf()?.pfn;
                self.memory.cleaned(backing, first, level);
            }
            let mapped = part.map()?;
            match mapped {
                Mapped::Installed | Mapped::Relaxed => {
                    self.platform.charge(Op::EntriesWritten(1));
                    return Ok(Attempt::Mapped(mapped));
                }
                Mapped::Already => return Ok(Attempt::Mapped(mapped)),
                Mapped::Retry => return Ok(Attempt::Refused(level)),
                Mapped::TooLarge => level = Level::PAGE,
            }
        }
    }
}

/// Whether a TLB may go on having `access` fault, which the table allows: by the entry that denied it, or by there
/// having been none.
const fn keeps_stale<W: World>(access: &Access) -> bool {
    W::Format::KEEPS_FAULTING && access.denied || W::Format::KEEPS_ABSENT
}

/// What slot and host allow together. A device is never executed from: a processor that fetches ahead would read its
/// registers (Arm: DDI 0487, "Device memory"; it has to be mapped no-execute).
fn allowed<B: Backing>(slot: &Slot<B>, resolved: &Resolved) -> Permissions {
    let mut allowed = resolved.allowed | Permissions::READ;
    if slot.flags().contains(Flags::READONLY) {
        allowed -= Permissions::WRITE;
    }
    if resolved.memory == MemoryType::Device {
        allowed -= Permissions::EXECUTE;
    }
    allowed
}

/// The largest block around `gfn` that slot and host allow: it lies within the slot, it is where the host's block is,
/// and no page of it is logged by itself.
fn block_of<B: Backing>(gfn: Gfn, slot: &Slot<B>, resolved: &Resolved) -> Level {
    let mut level = Level::PAGE;
    if slot.dirty().is_some() {
        return level;
    }
    while level < resolved.level {
        let above = level.above();
        let first = above.first(gfn);
        let into = gfn.get() - first.get();
        let inside =
            first >= slot.base() && first.get() + above.pages() <= slot.base().get() + slot.pages();
        let aligned = resolved.pfn.get() % above.pages() == into;
        if !(inside && aligned) {
            break;
        }
        level = above;
    }
    level
}
