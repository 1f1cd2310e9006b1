//! A guest access that found no translation: from the memslot to the entry.

use core::ops::Range;

use mayfly_memslot::{AddressSpace, Backing, Flags, Gfn, LastHit, Slot};
use mayfly_platform::address::Pfn;
use mayfly_srcu::{Reader, Section};
use mayfly_stage2::{Leaf, Level, Mapped, Permissions, RootRef, Seen};

use crate::vm::Inner;
use crate::world::{HostFault, HostMemory, Resolved};
use crate::{Error, World};

/// What became of a fault.
pub(crate) enum Handled {
    /// The access can be made again.
    Resolved,
    /// There is no memory there, or none that is written: a device's business.
    NotMemory,
}

impl<W: World> Inner<W> {
    /// Maps what `gfn` needs, in `root`, for an access that writes if `write`.
    ///
    /// Takes no lock. Waits where somebody else is changing the very entry, or the host is taking the page away.
    pub(crate) fn handle_fault(
        &self,
        gfn: Gfn,
        write: bool,
        root: &RootRef<W::Format>,
        reader: &Reader,
        last: &mut LastHit,
    ) -> Result<Handled, Error> {
        loop {
            let changing = {
                let section = reader.lock();
                // Before the slots and the host are asked: what they say is good if the sequence is still the same.
                let seen = self.stage2.sample();
                let slots = self.slots.load(AddressSpace::Main, &section);
                let Some(slot) = slots.find_near(gfn, last) else { return Ok(Handled::NotMemory) };
                if write && slot.flags().contains(Flags::READONLY) {
                    return Ok(Handled::NotMemory);
                }
                match self.map(gfn, write, slot, root, seen, &section)? {
                    None => return Ok(Handled::Resolved),
                    Some(changing) => changing,
                }
            };
            // Outside of the section, so that whoever is changing something need not wait for this.
            self.stage2.wait_invalidation(&changing);
        }
    }

    /// Returns the frames of what was to be mapped, if something has changed about them, or is changing.
    fn map(
        &self,
        gfn: Gfn,
        write: bool,
        slot: &Slot<W::Backing>,
        root: &RootRef<W::Format>,
        seen: Seen,
        section: &impl Section,
    ) -> Result<Option<Range<Gfn>>, Error> {
        let backing = slot.backing_of(gfn).ok_or(HostFault::NotMapped)?;
        let resolved = self.memory.resolve(backing, write)?;
        let writable = resolved.writable && !slot.flags().contains(Flags::READONLY);
        let logs = slot.dirty().is_some();
        let mut permissions = Permissions::READ | Permissions::EXECUTE;
        if writable && (write || !logs) {
            permissions |= Permissions::WRITE;
            // Before the guest can write. Whoever takes the mark has earlier faults refused, this one among them if it
            // has not come to the entry yet, and then write-protects the page before reading it.
            slot.mark_dirty(gfn);
        }
        let mut level = block_of(gfn, slot, resolved).min(largest::<W>());
        loop {
            let first = level.first(gfn);
            let into = gfn.get() - first.get();
            let pfn = Pfn::new(resolved.pfn.get() - into);
            match root.map(gfn, level, &Leaf::new(pfn, permissions), seen, section)? {
                Mapped::Installed | Mapped::Already => return Ok(None),
                Mapped::Retry => {
                    return Ok(Some(first..Gfn::new(first.get() + level.pages())));
                }
                Mapped::TooLarge => level = Level::PAGE,
            }
        }
    }
}

fn largest<W: World>() -> Level {
    <W::Format as mayfly_stage2::Format>::LARGEST_BLOCK
}

/// The largest block around `gfn` that slot and host allow: it lies within the slot, it is where the host's block is,
/// and no page of it is logged by itself.
fn block_of<B: Backing>(gfn: Gfn, slot: &Slot<B>, resolved: Resolved) -> Level {
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
