//! The translations that one CPU remembers.

use std::ops::Range;

use mayfly_platform::address::Gfn;
use mayfly_platform::tlb::Vmid;
use mayfly_stage2::{Leaf, Level};

/// The sizes that are remembered, each with how many of it: powers of two.
const SIZES: [(Level, usize); 3] = [(Level::PAGE, 512), (Level::MIB2, 128), (Level::GIB1, 32)];

/// One direct-mapped array for each size of translation.
#[derive(Debug)]
pub(super) struct Cache {
    arrays: [Box<[Option<Translation>]>; SIZES.len()],
}

#[derive(Clone, Debug)]
struct Translation {
    vmid: Vmid,
    /// The guest frame in units of the level.
    number: u64,
    leaf: Leaf,
}

impl Cache {
    pub(super) fn new() -> Self {
        Self { arrays: SIZES.map(|(_, count)| vec![None; count].into_boxed_slice()) }
    }

    /// The leaf that maps `gfn`, and its level.
    #[inline]
    pub(super) fn find(&self, vmid: Vmid, gfn: Gfn) -> Option<(Level, Leaf)> {
        SIZES.iter().zip(&self.arrays).find_map(|(&(level, count), array)| {
            let number = gfn.get() / level.pages();
            let translation = array[index(vmid, number, count)].as_ref()?;
            (translation.vmid == vmid && translation.number == number)
                .then_some((level, translation.leaf))
        })
    }

    /// Remembers the leaf that maps `gfn` at `level`; nothing where such a size is not remembered.
    pub(super) fn insert(&mut self, vmid: Vmid, gfn: Gfn, level: Level, leaf: Leaf) {
        for (&(size, count), array) in SIZES.iter().zip(&mut self.arrays) {
            if size == level {
                let number = gfn.get() / level.pages();
                array[index(vmid, number, count)] = Some(Translation { vmid, number, leaf });
            }
        }
    }

    /// Forgets what maps any of `gfns`.
    pub(super) fn forget_range(&mut self, vmid: Vmid, gfns: &Range<Gfn>) {
        for (&(level, count), array) in SIZES.iter().zip(&mut self.arrays) {
            let numbers = gfns.start.get() / level.pages()..gfns.end.get().div_ceil(level.pages());
            let is_meant = |translation: &mut Translation| {
                translation.vmid == vmid && numbers.contains(&translation.number)
            };
            if numbers.end.saturating_sub(numbers.start) > count as u64 {
                for entry in array {
                    entry.take_if(is_meant);
                }
            } else {
                for number in numbers.clone() {
                    array[index(vmid, number, count)].take_if(is_meant);
                }
            }
        }
    }

    /// Forgets what is remembered under `vmid`.
    pub(super) fn forget_vmid(&mut self, vmid: Vmid) {
        for entry in self.arrays.iter_mut().flatten() {
            entry.take_if(|translation| translation.vmid == vmid);
        }
    }

    pub(super) fn forget_everything(&mut self) {
        for array in &mut self.arrays {
            array.fill(None);
        }
    }
}

/// Where a translation is if it is anywhere. VMs use the same addresses, so their VMIDs keep them apart.
fn index(vmid: Vmid, number: u64, count: usize) -> usize {
    (number as usize).wrapping_add(usize::from(vmid.0).wrapping_mul(37)) % count
}
