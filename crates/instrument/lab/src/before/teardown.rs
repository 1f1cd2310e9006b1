//! How Linux v6.18 removes a VM's memory when the VM is destroyed, on arm64 and on x86.
//!
//! Both walks run on the tables of a VM that Mayfly built. They leave the tables themselves, which are then freed as Mayfly
//! frees them. So both are cheaper than Linux in two things: neither frees tables one by one, and neither waits for a
//! lock.

use std::hint::black_box;
use std::sync::atomic::{AtomicI64, Ordering};

use mayfly_platform::address::{Gfn, Pfn};
use mayfly_stage2::{Entry, Format, Level, State};

use super::unmap::Tables;

/// Pages between two chances for others to have the processor: 1 GiB, arm64's largest block with pages of 4 KiB
/// (`stage2_range_addr_end`, `arch/arm64/kvm/mmu.c`).
const RESCHED: u64 = Level::GIB1.pages();

/// What x86 counts of a VM's pages, by the level of their entries (`kvm->stat.pages`).
pub(crate) type PageCounts = [AtomicI64; 4];

impl Tables<'_> {
    /// Takes a reference to each table for each of its entries, as arm64 does when it makes them.
    pub(crate) fn count_entries<F: Format>(self) {
        self.each_entry::<F>(self.top, F::TOP, Gfn::new(0), &mut |table, _| self.arena.get(table));
    }

    /// As arm64 (`stage2_free_walker`, `arch/arm64/kvm/hyp/pgtable.c`): gives up one reference for each entry, and leaves
    /// the entry as it is; nothing is invalidated. `resched` is called after each GiB.
    pub(crate) fn put_entries<F: Format>(self, mut resched: impl FnMut()) {
        let mut next = RESCHED;
        self.each_entry::<F>(self.top, F::TOP, Gfn::new(0), &mut |table, gfn| {
            if gfn.get() >= next {
                next = (gfn.get() / RESCHED + 1) * RESCHED;
                resched();
            }
            // Never the last: the table's own is left.
            self.arena.put(table);
        });
    }

    /// Calls `each` for every entry, those of a table before the one that leads there, with the table that it is in, and
    /// what it stands for.
    fn each_entry<F: Format>(
        self,
        table: Pfn,
        level: Level,
        first: Gfn,
        each: &mut impl FnMut(Pfn, Gfn),
    ) {
        for (index, word) in (0..).zip(self.arena.words(table)) {
            let entry = Entry::<F>::from_bits(word.load(Ordering::Relaxed));
            let gfn = Gfn::new(first.get() + index * level.pages());
            match (entry.state(level), level.below()) {
                (State::Leaf, _) => each(table, gfn),
                (State::Table(child), Some(below)) => {
                    self.each_entry::<F>(child, below, gfn, each);
                    each(table, gfn);
                }
                _ => {}
            }
        }
    }

    /// As x86's TDP MMU (`kvm_tdp_mmu_zap_all`, `arch/x86/kvm/mmu/tdp_mmu.c`): all that is mapped by 4 KiB, then by 2 MiB,
    /// then by 1 GiB, and the root's own entries, each pass from the root on; a leaf is exchanged for nothing, since hardware may note an access in
    /// it, and counted; nothing is invalidated, as no vCPU runs again.
    pub(crate) fn zap_all<F: Format>(self, pages: &PageCounts) {
        let levels = [Level::PAGE, Level::MIB2, Level::GIB1, F::TOP];
        for (level, count) in levels.into_iter().zip(pages) {
            self.zap_table::<F>(self.top, F::TOP, level, count);
        }
    }

    fn zap_table<F: Format>(self, table: Pfn, level: Level, zapped: Level, count: &AtomicI64) {
        for word in self.arena.words(table) {
            let entry = Entry::<F>::from_bits(word.load(Ordering::Relaxed));
            match (entry.state(level), level.below()) {
                (State::Leaf, _) if level <= zapped => {
                    word.swap(0, Ordering::AcqRel);
                    count.fetch_sub(1, Ordering::Relaxed);
                }
                (State::Table(child), Some(below)) if level > zapped => {
                    self.zap_table::<F>(child, below, zapped, count);
                }
                // A table that goes with this pass: each of its entries is looked at once more (`handle_removed_pt`).
                (State::Table(child), Some(_)) => {
                    for word in self.arena.words(child) {
                        black_box(word.load(Ordering::Relaxed));
                    }
                }
                _ => {}
            }
        }
    }
}
