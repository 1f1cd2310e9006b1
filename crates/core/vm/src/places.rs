//! Where in the guest some host memory is mapped.

use core::ops::Range;

use mayfly_memslot::{AddressSpace, Backing, Flags, Gfn, PAGE_SIZE, Slot};

use crate::vm::Inner;
use crate::{PageChange, World};

/// Guest frames of one slot, behind which some host memory is.
pub(crate) struct Place {
    pub(crate) gfns: Range<Gfn>,
    /// How many pages of the host memory come before the first.
    before: u64,
    /// Whether they may be mapped to be written without a write to them having faulted: the slot allows writes, and
    /// keeps no log of them.
    pub(crate) writable: bool,
}

impl Place {
    /// Where `slot` has host memory from `from` on, which is `gfns`.
    fn new<B: Backing>(slot: &Slot<B>, gfns: Range<Gfn>, from: B) -> Self {
        let first = slot.backing_of(gfns.start).map_or(0, Backing::position);
        let before = first.saturating_sub(from.position()) / PAGE_SIZE;
        let writable = !slot.flags().contains(Flags::READONLY) && slot.dirty().is_none();
        Self { gfns, before, writable }
    }

    /// The number of the host's page that is at `gfn`.
    pub(crate) fn page(&self, gfn: Gfn) -> u64 {
        self.before + (gfn.get() - self.gfns.start.get())
    }

    /// What becomes of the page at `gfn`, of `changes` to the host's pages.
    pub(crate) fn change(&self, gfn: Gfn, changes: &[Option<PageChange>]) -> Option<PageChange> {
        changes.get(usize::try_from(self.page(gfn)).ok()?).copied().flatten()
    }

    /// The pages that change, of `changes` to the host's.
    pub(crate) fn changes(
        &self,
        changes: &[Option<PageChange>],
    ) -> impl Iterator<Item = (Gfn, PageChange)> {
        let gfns = (self.gfns.start.get()..self.gfns.end.get()).map(Gfn::new);
        gfns.filter_map(|gfn| Some((gfn, self.change(gfn, changes)?)))
    }
}

impl<W: World> Inner<W> {
    /// Calls `each` with every place in guest memory that is backed by some of the `bytes` bytes at `from`, the slot
    /// that is being taken away included. Inside an invalidation the memslots stay as they are, so going on behind the
    /// last one, outside of a section, finds all of them. Takes time in the number of places, and for each in the
    /// logarithm of that of the slots.
    pub(crate) fn for_each_place(&self, from: W::Backing, bytes: u64, mut each: impl FnMut(Place)) {
        for space in [AddressSpace::Main, AddressSpace::Smm] {
            let mut next = 0;
            while let Some(place) = self.place(space, from, bytes, &mut next) {
                each(place);
            }
        }
        if let Some(place) = self.left(from, bytes) {
            each(place);
        }
    }

    /// The first place in `space`, at `next` or behind, that is backed by some of the `bytes` bytes at `from`.
    fn place(
        &self,
        space: AddressSpace,
        from: W::Backing,
        bytes: u64,
        next: &mut usize,
    ) -> Option<Place> {
        let section = self.srcu.read_lock();
        let slots = self.slots.load(space, &section);
        let (slot, gfns) = slots.next_backed_by(from, bytes, next)?;
        Some(Place::new(slot, gfns, from))
    }

    /// Whether the slot that is being taken away, if there is one, was at some of `gfns`. Another slot may be there by
    /// now: this one, where it has moved by less than its length. Inside an invalidation of them that stays so until the
    /// slot is zapped.
    pub(crate) fn is_leaving_at(&self, gfns: &Range<Gfn>) -> bool {
        let leaving = self.leaving.lock(&*self.platform);
        leaving.as_ref().is_some_and(|slot| {
            let old = slot.gfns();
            old.start < gfns.end && gfns.start < old.end
        })
    }

    /// The place in the slot that is being taken away, if there is one, that is backed by some of the `bytes` bytes at
    /// `from`. No lookup finds the slot, but it is not zapped yet.
    fn left(&self, from: W::Backing, bytes: u64) -> Option<Place> {
        let leaving = self.leaving.lock(&*self.platform);
        let slot = leaving.as_ref()?;
        slot.backed_by(from, bytes).map(|gfns| Place::new(slot, gfns, from))
    }
}
