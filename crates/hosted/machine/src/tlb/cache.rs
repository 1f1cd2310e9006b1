//! What one CPU remembers of tables.
//!
//! Hardware forgets all of a VMID at once, however much it remembers of it. So does this: each place has the *age* that its
//! VMID had when the place was filled. To forget a VMID is to make it older. A place whose age is not its VMID's holds
//! nothing.

use std::ops::Range;

use mayfly_platform::address::{Gfn, Pfn};
use mayfly_platform::frames::WORDS;
use mayfly_platform::tlb::{Entries, Span, Vmid};
use mayfly_stage2::{Leaf, Level};

/// The sizes of leaves that are remembered, each with how many of it: powers of two.
const SIZES: [(Level, usize); 3] = [(Level::PAGE, 1024), (Level::MIB2, 128), (Level::GIB1, 32)];

/// The levels of tables that are remembered, from the lowest, likewise.
const TABLES: [(Level, usize); 3] = [(Level::PAGE, 64), (Level::MIB2, 16), (Level::GIB1, 4)];

/// What is known of a guest frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// A leaf maps it.
    Leaf(Level, Leaf),
    /// Nothing does.
    Absent(Level),
}

/// A direct-mapped array for each size of leaf, and for each level of table.
#[derive(Debug)]
pub(super) struct Cache {
    leaves: [Array<Known>; SIZES.len()],
    tables: [Array<Pfn>; TABLES.len()],
    ages: Ages,
}

/// How often each VMID was forgotten; those beyond the last never.
#[derive(Debug, Default)]
struct Ages(Vec<u64>);

/// A VMID, since it was last forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tag {
    vmid: Vmid,
    age: u64,
}

impl Ages {
    #[inline]
    fn tag(&self, vmid: Vmid) -> Tag {
        Tag { vmid, age: self.0.get(usize::from(vmid.0)).copied().unwrap_or(0) }
    }

    fn forget(&mut self, vmid: Vmid) {
        let index = usize::from(vmid.0);
        if self.0.len() <= index {
            self.0.resize(index + 1, 0);
        }
        self.0[index] += 1;
    }
}

impl Cache {
    pub(super) fn new() -> Self {
        Self {
            leaves: SIZES.map(|(level, count)| Array::new(level.pages(), count)),
            tables: TABLES.map(|(level, count)| Array::new(level.pages() * WORDS as u64, count)),
            ages: Ages::default(),
        }
    }

    /// What is remembered of `gfn`.
    #[inline]
    pub(super) fn find(&self, vmid: Vmid, gfn: Gfn) -> Option<Known> {
        let tag = self.ages.tag(vmid);
        self.leaves.iter().find_map(|array| array.find(tag, gfn))
    }

    /// The lowest table that is remembered on the way to `gfn`, and its level.
    pub(super) fn table(&self, vmid: Vmid, gfn: Gfn) -> Option<(Level, Pfn)> {
        let (tag, levels) = (self.ages.tag(vmid), TABLES.iter().zip(&self.tables));
        levels.into_iter().find_map(|((level, _), array)| Some((*level, array.find(tag, gfn)?)))
    }

    /// Remembers the leaf that maps `gfn` at `level`; nothing where such a size is not remembered. Returns whether it
    /// would be remembered still, had it not been made to forget.
    pub(super) fn insert(&mut self, vmid: Vmid, gfn: Gfn, level: Level, leaf: Leaf) -> bool {
        let (tag, mut sizes) = (self.ages.tag(vmid), SIZES.iter().zip(&mut self.leaves));
        sizes
            .find(|((size, _), _)| *size == level)
            .is_some_and(|(_, array)| array.insert(tag, gfn, Known::Leaf(level, leaf)))
    }

    /// Remembers that nothing maps `gfn`: the walk ended at `level`.
    pub(super) fn insert_absent(&mut self, vmid: Vmid, gfn: Gfn, level: Level) {
        self.leaves[0].insert(self.ages.tag(vmid), gfn, Known::Absent(level));
    }

    /// Remembers the table of `level` on the way to `gfn`.
    pub(super) fn insert_table(&mut self, vmid: Vmid, gfn: Gfn, level: Level, table: Pfn) {
        let tag = self.ages.tag(vmid);
        for ((size, _), array) in TABLES.iter().zip(&mut self.tables) {
            if *size == level {
                array.insert(tag, gfn, table);
            }
        }
    }

    /// Forgets what is remembered of any of `gfns`, tables included.
    pub(super) fn forget_range(&mut self, vmid: Vmid, gfns: &Range<Gfn>) {
        let tag = self.ages.tag(vmid);
        self.leaves.iter_mut().for_each(|array| array.forget(tag, gfns));
        self.tables.iter_mut().for_each(|array| array.forget(tag, gfns));
    }

    /// Forgets what lies at the addresses of `span`, and is of the kind that it says.
    pub(super) fn forget_addresses(&mut self, vmid: Vmid, span: &Span) {
        let tag = self.ages.tag(vmid);
        for array in &mut self.leaves {
            if span.entries != Entries::Leaves || array.pages == span.stride {
                array.forget_at(tag, span);
            }
        }
        if span.entries == Entries::Any {
            self.tables.iter_mut().for_each(|array| array.forget_at(tag, span));
        }
    }

    /// Forgets what leaf there is, or that there is none, for `gfn`.
    pub(super) fn forget_leaf(&mut self, vmid: Vmid, gfn: Gfn) {
        let (tag, page) = (self.ages.tag(vmid), gfn..Gfn::new(gfn.get() + 1));
        self.leaves.iter_mut().for_each(|array| array.forget(tag, &page));
    }

    /// Forgets what is remembered under `vmid`.
    pub(super) fn forget_vmid(&mut self, vmid: Vmid) {
        self.ages.forget(vmid);
    }

    pub(super) fn forget_everything(&mut self) {
        self.leaves.iter_mut().for_each(|array| array.forget_if(|_| true));
        self.tables.iter_mut().for_each(|array| array.forget_if(|_| true));
    }
}

/// What is remembered of units of so many pages each.
#[derive(Debug)]
struct Array<T> {
    pages: u64,
    places: Box<[Option<Place<T>>]>,
}

#[derive(Clone, Debug)]
struct Place<T> {
    tag: Tag,
    /// The guest frame in units.
    number: u64,
    /// Nothing, once it was made to forget that; of what has pushed it out there is a place of its own.
    what: Option<T>,
}

impl<T: Copy> Array<T> {
    fn new(pages: u64, count: usize) -> Self {
        Self { pages, places: vec![None; count].into_boxed_slice() }
    }

    #[inline]
    fn find(&self, tag: Tag, gfn: Gfn) -> Option<T> {
        let number = gfn.get() / self.pages;
        let place = self.places[self.index(tag, number)].as_ref()?;
        if place.tag == tag && place.number == number { place.what } else { None }
    }

    /// Returns whether it comes back to where it was forgotten.
    fn insert(&mut self, tag: Tag, gfn: Gfn, what: T) -> bool {
        let number = gfn.get() / self.pages;
        let what = Some(what);
        let before = self.places[self.index(tag, number)].replace(Place { tag, number, what });
        before.is_some_and(|before| {
            let is_forgotten = before.what.is_none() || before.tag != tag;
            before.tag.vmid == tag.vmid && before.number == number && is_forgotten
        })
    }

    fn forget(&mut self, tag: Tag, gfns: &Range<Gfn>) {
        let numbers = gfns.start.get() / self.pages..gfns.end.get().div_ceil(self.pages);
        if numbers.end.saturating_sub(numbers.start) > self.places.len() as u64 {
            self.forget_if(|place| place.tag == tag && numbers.contains(&place.number));
        } else {
            numbers.for_each(|number| self.forget_one(tag, number));
        }
    }

    /// Forgets the units that an address of `span` lies in.
    fn forget_at(&mut self, tag: Tag, span: &Span) {
        let pages = self.pages;
        if span.count() <= self.places.len() as u64 {
            for address in span.addresses() {
                self.forget_one(tag, address.get() / pages);
            }
            return;
        }
        self.forget_if(|place| {
            let first = place.number * pages;
            place.tag == tag && span.reaches(&(Gfn::new(first)..Gfn::new(first + pages)))
        });
    }

    fn forget_one(&mut self, tag: Tag, number: u64) {
        if let Some(place) = &mut self.places[self.index(tag, number)]
            && place.tag == tag
            && place.number == number
        {
            place.what = None;
        }
    }

    fn forget_if(&mut self, is_meant: impl Fn(&Place<T>) -> bool) {
        for place in self.places.iter_mut().flatten() {
            if is_meant(place) {
                place.what = None;
            }
        }
    }

    /// Where a unit is if it is anywhere. VMs use the same addresses, so their VMIDs keep them apart.
    fn index(&self, tag: Tag, number: u64) -> usize {
        (number as usize).wrapping_add(usize::from(tag.vmid.0).wrapping_mul(37)) % self.places.len()
    }
}

#[cfg(test)]
mod tests {
    use mayfly_stage2::Permissions;

    use super::*;

    #[test]
    fn a_vmid_is_forgotten_at_once_and_no_other_and_what_comes_back_is_told() {
        let (one, other, gfn) = (Vmid(3), Vmid(900), Gfn::new(5));
        let leaf = Leaf::new(Pfn::new(9), Permissions::READ);
        let mut cache = Cache::new();
        let insert = |cache: &mut Cache, vmid| cache.insert(vmid, gfn, Level::PAGE, leaf);
        for vmid in [one, other] {
            assert!(!insert(&mut cache, vmid), "it was never forgotten");
            cache.insert_table(vmid, gfn, Level::PAGE, Pfn::new(7));
        }
        for _ in 0..2 {
            cache.forget_vmid(one);
            assert_eq!((cache.find(one, gfn), cache.table(one, gfn)), (None, None));
            assert_eq!(cache.find(other, gfn), Some(Known::Leaf(Level::PAGE, leaf)));
            assert_eq!(cache.table(other, gfn), Some((Level::PAGE, Pfn::new(7))));
        }
        assert!(insert(&mut cache, one), "it comes back");
        assert!(cache.find(one, gfn).is_some() && !insert(&mut cache, one));
        cache.forget_leaf(one, gfn);
        assert_eq!(cache.find(one, gfn), None);
        assert!(insert(&mut cache, one));
    }
}
