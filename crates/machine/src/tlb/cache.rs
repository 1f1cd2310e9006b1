//! What one CPU remembers of tables.

use std::ops::Range;

use mayfly_platform::address::{Gfn, Pfn};
use mayfly_platform::frames::WORDS;
use mayfly_platform::tlb::{Entries, Span, Vmid};
use mayfly_stage2::{Leaf, Level};

/// The sizes of leaves that are remembered, each with how many of it: powers of two.
const SIZES: [(Level, usize); 3] = [(Level::PAGE, 512), (Level::MIB2, 128), (Level::GIB1, 32)];

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
}

impl Cache {
    pub(super) fn new() -> Self {
        Self {
            leaves: SIZES.map(|(level, count)| Array::new(level.pages(), count)),
            tables: TABLES.map(|(level, count)| Array::new(level.pages() * WORDS as u64, count)),
        }
    }

    /// What is remembered of `gfn`.
    #[inline]
    pub(super) fn find(&self, vmid: Vmid, gfn: Gfn) -> Option<Known> {
        self.leaves.iter().find_map(|array| array.find(vmid, gfn))
    }

    /// The lowest table that is remembered on the way to `gfn`, and its level.
    pub(super) fn table(&self, vmid: Vmid, gfn: Gfn) -> Option<(Level, Pfn)> {
        let levels = TABLES.iter().zip(&self.tables);
        levels.into_iter().find_map(|((level, _), array)| Some((*level, array.find(vmid, gfn)?)))
    }

    /// Remembers the leaf that maps `gfn` at `level`; nothing where such a size is not remembered.
    pub(super) fn insert(&mut self, vmid: Vmid, gfn: Gfn, level: Level, leaf: Leaf) {
        for ((size, _), array) in SIZES.iter().zip(&mut self.leaves) {
            if *size == level {
                array.insert(vmid, gfn, Known::Leaf(level, leaf));
            }
        }
    }

    /// Remembers that nothing maps `gfn`: the walk ended at `level`.
    pub(super) fn insert_absent(&mut self, vmid: Vmid, gfn: Gfn, level: Level) {
        self.leaves[0].insert(vmid, gfn, Known::Absent(level));
    }

    /// Remembers the table of `level` on the way to `gfn`.
    pub(super) fn insert_table(&mut self, vmid: Vmid, gfn: Gfn, level: Level, table: Pfn) {
        for ((size, _), array) in TABLES.iter().zip(&mut self.tables) {
            if *size == level {
                array.insert(vmid, gfn, table);
            }
        }
    }

    /// Forgets what is remembered of any of `gfns`, tables included.
    pub(super) fn forget_range(&mut self, vmid: Vmid, gfns: &Range<Gfn>) {
        self.leaves.iter_mut().for_each(|array| array.forget(vmid, gfns));
        self.tables.iter_mut().for_each(|array| array.forget(vmid, gfns));
    }

    /// Forgets what lies at the addresses of `span`, and is of the kind that it says.
    pub(super) fn forget_addresses(&mut self, vmid: Vmid, span: &Span) {
        for array in &mut self.leaves {
            if span.entries != Entries::Leaves || array.pages == span.stride {
                array.forget_at(vmid, span);
            }
        }
        if span.entries == Entries::Any {
            self.tables.iter_mut().for_each(|array| array.forget_at(vmid, span));
        }
    }

    /// Forgets what leaf there is, or that there is none, for `gfn`.
    pub(super) fn forget_leaf(&mut self, vmid: Vmid, gfn: Gfn) {
        let page = gfn..Gfn::new(gfn.get() + 1);
        self.leaves.iter_mut().for_each(|array| array.forget(vmid, &page));
    }

    /// Forgets what is remembered under `vmid`.
    pub(super) fn forget_vmid(&mut self, vmid: Vmid) {
        self.leaves.iter_mut().for_each(|array| array.forget_vmid(vmid));
        self.tables.iter_mut().for_each(|array| array.forget_vmid(vmid));
    }

    pub(super) fn forget_everything(&mut self) {
        self.leaves.iter_mut().for_each(|array| array.places.fill(None));
        self.tables.iter_mut().for_each(|array| array.places.fill(None));
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
    vmid: Vmid,
    /// The guest frame in units.
    number: u64,
    what: T,
}

impl<T: Copy> Array<T> {
    fn new(pages: u64, count: usize) -> Self {
        Self { pages, places: vec![None; count].into_boxed_slice() }
    }

    #[inline]
    fn find(&self, vmid: Vmid, gfn: Gfn) -> Option<T> {
        let number = gfn.get() / self.pages;
        let place = self.places[self.index(vmid, number)].as_ref()?;
        (place.vmid == vmid && place.number == number).then_some(place.what)
    }

    fn insert(&mut self, vmid: Vmid, gfn: Gfn, what: T) {
        let number = gfn.get() / self.pages;
        self.places[self.index(vmid, number)] = Some(Place { vmid, number, what });
    }

    fn forget(&mut self, vmid: Vmid, gfns: &Range<Gfn>) {
        let numbers = gfns.start.get() / self.pages..gfns.end.get().div_ceil(self.pages);
        let is_meant = |place: &mut Place<T>| place.vmid == vmid && numbers.contains(&place.number);
        if numbers.end.saturating_sub(numbers.start) > self.places.len() as u64 {
            for place in &mut self.places {
                place.take_if(is_meant);
            }
        } else {
            for number in numbers.clone() {
                self.places[self.index(vmid, number)].take_if(is_meant);
            }
        }
    }

    /// Forgets the units that an address of `span` lies in.
    fn forget_at(&mut self, vmid: Vmid, span: &Span) {
        let pages = self.pages;
        if span.count() <= self.places.len() as u64 {
            for address in span.addresses() {
                let number = address.get() / pages;
                let is_meant = |place: &mut Place<T>| place.vmid == vmid && place.number == number;
                self.places[self.index(vmid, number)].take_if(is_meant);
            }
            return;
        }
        for place in &mut self.places {
            place.take_if(|place| {
                let first = place.number * pages;
                place.vmid == vmid && span.reaches(&(Gfn::new(first)..Gfn::new(first + pages)))
            });
        }
    }

    fn forget_vmid(&mut self, vmid: Vmid) {
        for place in &mut self.places {
            place.take_if(|place| place.vmid == vmid);
        }
    }

    /// Where a unit is if it is anywhere. VMs use the same addresses, so their VMIDs keep them apart.
    fn index(&self, vmid: Vmid, number: u64) -> usize {
        (number as usize).wrapping_add(usize::from(vmid.0).wrapping_mul(37)) % self.places.len()
    }
}
