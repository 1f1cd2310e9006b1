//! What the host tells a VM of its own memory.

use core::ops::Range;

use mayfly_memslot::{AddressSpace, Gfn};
use mayfly_platform::address::Pfn;
use mayfly_stage2::{Invalidation, Tables};

use crate::World;
use crate::vm::{Inner, Vm};

/// Why the host takes memory away from where it is, or some right to it.
///
/// The reasons of Linux's notifiers (`include/linux/mmu_notifier.h`), as far as they make a difference here, which is
/// whether the tables will be needed again, and whether a device is about to read the memory past the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// It is unmapped for good (`munmap`, `mremap`).
    Unmap,
    /// Its whole address space goes.
    Exit,
    /// It moves to other frames.
    Migrate,
    /// It is swapped out, or otherwise reclaimed; by a device that does not look into the caches, unless `coherent`.
    Reclaim {
        /// Whether the device that gets it reads through the caches.
        coherent: bool,
    },
    /// The host's rights to it are reduced (`mprotect`).
    Protect,
    /// It becomes one with another page of the same contents.
    Merge,
    /// It gets a frame of its own again, to be written.
    CopyOnWrite,
}

impl<W: World> Vm<W> {
    /// The host is about to change what `bytes` bytes of its memory from `from` on are. When this returns, no CPU uses
    /// what the VM had mapped of it, and no fault maps anything of it until what this returns is dropped, which the
    /// host does when the change is made.
    ///
    /// May be called while other changes are under way; and, but for [`Reason::Unmap`] and [`Reason::Exit`], from
    /// inside [`HostMemory::resolve`](crate::HostMemory::resolve).
    pub fn invalidate_start(
        &self,
        from: W::Backing,
        bytes: u64,
        reason: Reason,
    ) -> Invalidation<'_> {
        let vm = self.inner();
        let invalidation = vm.stage2.begin_invalidation_of(|| vm.hull(from, bytes));
        // The memslots stay as they are until the end, so they can be gone through by number, outside of a section.
        let mut number = 0;
        while let Some(gfns) = vm.place(from, bytes, number) {
            vm.zap_for(gfns, reason);
            number += 1;
        }
        if let Some(gfns) = vm.left(from, bytes) {
            vm.zap_for(gfns, reason);
        }
        invalidation
    }

    /// Ends an invalidation whose guard was [forgotten](core::mem::forget), because the host tells of the start and of
    /// the end by different calls.
    pub fn invalidate_end(&self) {
        self.inner().stage2.end_invalidation();
    }

    /// Whether the guest has accessed `bytes` bytes of host memory from `from` on since this was last asked: how many
    /// pages of it, where a block counts as all its pages.
    pub fn age(&self, from: W::Backing, bytes: u64) -> u64 {
        let vm = self.inner();
        let mut accessed = 0;
        let mut number = 0;
        while let Some(gfns) = vm.place(from, bytes, number) {
            vm.stage2.age(gfns, vm.slice, |_, pages| accessed += pages);
            number += 1;
        }
        accessed
    }
}

impl<W: World> Inner<W> {
    /// Guest frames among which are all that are backed by the `bytes` bytes at `from`.
    fn hull(&self, from: W::Backing, bytes: u64) -> Range<Gfn> {
        let mut hull = self.left(from, bytes).unwrap_or(Gfn::new(u64::MAX)..Gfn::new(0));
        let mut number = 0;
        while let Some(gfns) = self.place(from, bytes, number) {
            hull = hull.start.min(gfns.start)..hull.end.max(gfns.end);
            number += 1;
        }
        hull
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

    fn zap_for(&self, gfns: Range<Gfn>, reason: Reason) {
        match reason {
            Reason::Unmap | Reason::Exit => self.stage2.zap(gfns, Tables::Free, self.slice),
            Reason::Reclaim { coherent: false } => self.zap_and_clean(&gfns),
            // Which waits for no reader, as the caller may be one.
            _ => self.stage2.zap(gfns, Tables::Keep, self.slice),
        }
    }

    fn zap_and_clean(&self, gfns: &Range<Gfn>) {
        self.stage2.zap_each(gfns.clone(), self.slice, |gfn, level, leaf| {
            let first = gfn.max(gfns.start);
            let end = gfns.end.get().min(gfn.get() + level.pages());
            let into = first.get() - gfn.get();
            let pfn = Pfn::new(leaf.pfn.get() + into);
            self.cache.clean(pfn, end - first.get());
        });
    }
}
