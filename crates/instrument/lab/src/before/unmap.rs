//! How arm64 removed a VM's memory before: entry by entry.
//!
//! The walk runs on the tables of a VM that Mayfly built. It is cheaper than Linux in one thing: it keeps no count of the
//! entries of a table. Linux had that count in the reference count of the table's page, and changed it with an atomic
//! operation for each entry (`put_page` in `clear_stage2_pte_entry`, `virt/kvm/arm/mmu.c`).

use std::sync::atomic::Ordering;

use mayfly_machine::Arena;
use mayfly_platform::address::{Gfn, Pfn};
use mayfly_stage2::{Entry, Format, Leaf, Level, State};

/// A VM's tables, of which no CPU is running on any.
#[derive(Clone, Copy)]
pub(crate) struct Tables<'a> {
    pub(crate) arena: &'a Arena,
    /// The root.
    pub(crate) top: Pfn,
}

impl Tables<'_> {
    /// Walks all tables in format `F`, clears every leaf, and calls `each` after each.
    pub(crate) fn unmap<F: Format>(self, mut each: impl FnMut(Gfn, Level, &Leaf)) {
        const { assert!(F::ROOT_ORDER == 0, "the root is one table") };
        self.unmap_table::<F>(self.top, F::TOP, Gfn::new(0), &mut each);
    }

    fn unmap_table<F: Format>(
        self,
        table: Pfn,
        level: Level,
        first: Gfn,
        each: &mut impl FnMut(Gfn, Level, &Leaf),
    ) {
        for (index, word) in (0..).zip(self.arena.words(table)) {
            let entry = Entry::<F>::from_bits(word.load(Ordering::Relaxed));
            let gfn = Gfn::new(first.get() + index * level.pages());
            match (entry.state(level), level.below()) {
                (State::Leaf, _) => {
                    word.store(0, Ordering::Relaxed);
                    each(gfn, level, &entry.to_leaf(level));
                }
                (State::Table(table), Some(below)) => {
                    self.unmap_table::<F>(table, below, gfn, each);
                }
                _ => {}
            }
        }
    }

    /// How many leaves there are, and the frames that they map.
    #[cfg(test)]
    pub(crate) fn leaves<F: Format>(self) -> (u64, u64) {
        fn count<F: Format>(tables: Tables<'_>, table: Pfn, level: Level) -> (u64, u64) {
            tables.arena.words(table).fold((0, 0), |(leaves, frames), word| {
                let entry = Entry::<F>::from_bits(word.load(Ordering::Relaxed));
                let (more, mapped) = match (entry.state(level), level.below()) {
                    (State::Leaf, _) => (1, level.pages()),
                    (State::Table(table), Some(below)) => count::<F>(tables, table, below),
                    _ => (0, 0),
                };
                (leaves + more, frames + mapped)
            })
        }
        const { assert!(F::ROOT_ORDER == 0, "the root is one table") };
        count::<F>(self, self.top, F::TOP)
    }
}
