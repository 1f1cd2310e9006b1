//! All slots of an address space at one moment.

use alloc::vec::Vec;
use core::ops::Range;

use mayfly_platform::memory::OutOfMemory;
use mayfly_srcu::RcuBox;

use crate::backing_index::BackingIndex;
use crate::region::AddressSpace;
use crate::{Backing, Edit, Gfn, Slot, SlotId};

/// The slots of one address space, which never change: a writer that wants others publishes another snapshot.
///
/// The slots lie sorted by their first frame. The first frames lie beside them once more, eight to a cache line, and
/// are what a lookup searches, without a branch that could be predicted wrongly; so it reads log2(n) of them and one
/// slot.
#[derive(Debug)]
pub struct Snapshot<B> {
    generation: u64,
    bases: Vec<Gfn>,
    slots: Vec<Slot<B>>,
    by_backing: BackingIndex,
}

/// Where a vCPU found its last slot, to look there first. May be used with any snapshot: an entry that the
/// snapshot does not confirm only costs the look.
#[derive(Clone, Copy, Debug, Default)]
pub struct LastHit(usize);

impl<B: Backing> Snapshot<B> {
    /// No slots, in the first generation of `space`.
    pub(crate) fn try_empty(space: AddressSpace) -> Result<RcuBox<Self>, OutOfMemory> {
        RcuBox::try_new(Self {
            generation: space as u64,
            bases: Vec::new(),
            slots: Vec::new(),
            by_backing: BackingIndex::default(),
        })
    }

    /// This after `edit`, in the next generation.
    pub(crate) fn try_edited(&self, edit: &Edit<B>) -> Result<RcuBox<Self>, OutOfMemory> {
        let old = edit.before().and_then(|old| self.position(old.base()));
        let (before, after) = match old {
            Some(old) => (&self.slots[..old], &self.slots[old + 1..]),
            None => (&self.slots[..], [].as_slice()),
        };
        let mut slots = Vec::new();
        slots.try_reserve_exact(self.slots.len() + 1)?;
        slots.extend_from_slice(before);
        slots.extend_from_slice(after);
        let new =
            edit.after().map(|new| (slots.partition_point(|slot| slot.base() < new.base()), new));
        if let Some((at, new)) = new {
            slots.insert(at, new.clone());
        }
        let by_backing = self.by_backing.try_edited(old, new)?;

        let mut bases = Vec::new();
        bases.try_reserve_exact(slots.len())?;
        bases.extend(slots.iter().map(Slot::base));

        let held = slots.capacity() * size_of::<Slot<B>>()
            + bases.capacity() * size_of::<Gfn>()
            + by_backing.held();
        let generation = self.generation + AddressSpace::COUNT;
        RcuBox::try_new_holding(Self { generation, bases, slots, by_backing }, held)
    }

    /// Names this state of the slots: later ones of the same address space have greater numbers, and no two snapshots
    /// of a VM have the same. (As in KVM, the address spaces take turns: one has the even numbers, the other the odd.)
    ///
    /// What was derived from a snapshot, "no slot has this frame" included, may be kept together with its generation,
    /// and is good while the present one is the same.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The slot that has frame `gfn`.
    #[inline]
    pub fn find(&self, gfn: Gfn) -> Option<&Slot<B>> {
        // What a small VM has. There is nothing to search, so its bounds alone are read.
        if let [only] = &self.slots[..] {
            return Some(only).filter(|slot| slot.contains(gfn));
        }
        self.slots.get(self.before(gfn)).filter(|slot| slot.contains(gfn))
    }

    /// As [`Snapshot::find`], and looks where `last` was found first.
    #[inline]
    pub fn find_near(&self, gfn: Gfn, last: &mut LastHit) -> Option<&Slot<B>> {
        if let Some(slot) = self.slots.get(last.0)
            && slot.contains(gfn)
        {
            return Some(slot);
        }
        last.0 = self.position(gfn)?;
        self.slots.get(last.0)
    }

    /// The slots that have frames of `gfns`, in order.
    pub fn overlapping(&self, gfns: Range<Gfn>) -> impl Iterator<Item = &Slot<B>> {
        let first = self.bases.partition_point(|&base| base <= gfns.start).saturating_sub(1);
        self.slots[first..]
            .iter()
            .take_while(move |slot| slot.base() < gfns.end)
            .filter(move |slot| slot.gfns().end > gfns.start && !gfns.is_empty())
    }

    /// The slots that have host memory of the `bytes` bytes at `from`, each with its frames there; in no order. Slots
    /// may share host memory, and a frame counts if it has one of the bytes.
    ///
    /// Takes time in the logarithm of the number of slots, for each slot found.
    pub fn backed_by(&self, from: B, bytes: u64) -> impl Iterator<Item = (&Slot<B>, Range<Gfn>)> {
        let from = from.position();
        let found = self.by_backing.overlapping(from..from.saturating_add(bytes));
        found.map(|(index, pages)| self.backed(index, &pages))
    }

    /// As [`Snapshot::backed_by`], one at a time: the first at `next` or behind, and `next` is then behind it. 0 is
    /// before all. For a reader that leaves the section in between; as long as the snapshot is the same, none is
    /// missed, and none found twice.
    ///
    /// Takes time in the logarithm of the number of slots, however many were found before.
    pub fn next_backed_by(
        &self,
        from: B,
        bytes: u64,
        next: &mut usize,
    ) -> Option<(&Slot<B>, Range<Gfn>)> {
        let from = from.position();
        let positions = from..from.saturating_add(bytes);
        let (behind, (index, pages)) = self.by_backing.first_from(&positions, *next)?;
        *next = behind;
        Some(self.backed(index, &pages))
    }

    fn backed(&self, index: usize, pages: &Range<u64>) -> (&Slot<B>, Range<Gfn>) {
        let slot = &self.slots[index];
        let base = slot.base().get();
        (slot, Gfn::new(base + pages.start)..Gfn::new(base + pages.end))
    }

    /// The slot named `id`. Looks at each slot; for callers that change or inspect slots.
    pub fn slot(&self, id: SlotId) -> Option<&Slot<B>> {
        self.slots.iter().find(|slot| slot.id() == id)
    }

    /// All slots, by their first frame.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Slot<B>> {
        self.slots.iter()
    }

    /// How many slots there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is no slot.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Where the slot that has frame `gfn` lies.
    #[inline]
    fn position(&self, gfn: Gfn) -> Option<usize> {
        let at = self.before(gfn);
        self.slots.get(at)?.contains(gfn).then_some(at)
    }

    /// Where the last slot lies that does not begin behind `gfn`; `usize::MAX`, where no slot lies, if all do. So a lookup
    /// has one branch for both.
    #[inline]
    fn before(&self, gfn: Gfn) -> usize {
        self.bases.partition_point(|&base| base <= gfn).wrapping_sub(1)
    }
}
