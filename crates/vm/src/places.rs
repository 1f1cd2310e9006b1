//! Where in the guest some host memory is.

use core::ops::Range;

use mayfly_memslot::{AddressSpace, Gfn};

use crate::World;
use crate::vm::Inner;

impl<W: World> Inner<W> {
    /// Guest frames among which are all that are backed by the `bytes` bytes at `from`.
    pub(crate) fn hull(&self, from: W::Backing, bytes: u64) -> Range<Gfn> {
        let mut hull = self.left(from, bytes).unwrap_or(Gfn::new(u64::MAX)..Gfn::new(0));
        let mut number = 0;
        while let Some(gfns) = self.place(from, bytes, number) {
            hull = hull.start.min(gfns.start)..hull.end.max(gfns.end);
            number += 1;
        }
        hull
    }

    /// Calls `each` with the guest frames of every place that is backed by some of the `bytes` bytes at `from`, the slot
    /// that is being taken away included. Inside an invalidation the memslots stay as they are, so going through them by
    /// number, outside of a section, finds all of them.
    pub(crate) fn for_each_place(
        &self,
        from: W::Backing,
        bytes: u64,
        mut each: impl FnMut(Range<Gfn>),
    ) {
        let mut number = 0;
        while let Some(gfns) = self.place(from, bytes, number) {
            each(gfns);
            number += 1;
        }
        if let Some(gfns) = self.left(from, bytes) {
            each(gfns);
        }
    }

    /// Place `number` of those in guest memory that are backed by some of the `bytes` bytes at `from`.
    fn place(&self, from: W::Backing, bytes: u64, number: usize) -> Option<Range<Gfn>> {
        let section = self.srcu.read_lock();
        let spaces = [AddressSpace::Main, AddressSpace::Smm].into_iter();
        spaces
            .flat_map(|space| self.slots.load(space, &section).backed_by(from, bytes))
            .nth(number)
            .map(|(_, gfns)| gfns)
    }

    /// Guest frames of the slot that is being taken away, if there is one, that are backed by some of the `bytes` bytes
    /// at `from`. Nobody finds the slot, but it is not zapped yet.
    fn left(&self, from: W::Backing, bytes: u64) -> Option<Range<Gfn>> {
        self.leaving.lock(&*self.platform).as_ref()?.backed_by(from, bytes)
    }
}
