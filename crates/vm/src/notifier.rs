//! What the host tells a VM of its own memory.

use core::ops::Range;

use mayfly_memslot::{Gfn, PAGE_SIZE};
use mayfly_platform::address::Pfn;
use mayfly_stage2::{Invalidation, Tables};

use crate::vm::{Inner, Vm};
use crate::{Change, PageChange, Reason, World};

impl<W: World> Vm<W> {
    /// The host is about to change what `bytes` bytes of its memory from `from` on are. When this returns, no CPU does
    /// more with what the VM had mapped of it than `change` leaves, and no fault maps anything of it until what this
    /// returns is dropped, which the host does when the change is made.
    ///
    /// What goes on being readable stays mapped, without its right to write. What comes of a page in the meantime is
    /// told by [`Vm::change_pte`].
    ///
    /// May be called while other changes are under way; and, but for [`Reason::Unmap`] and [`Reason::Exit`], from
    /// inside [`HostMemory::resolve`](crate::HostMemory::resolve).
    pub fn invalidate_start(
        &self,
        from: W::Backing,
        bytes: u64,
        change: impl Into<Change>,
    ) -> Invalidation<'_> {
        let vm = self.inner();
        let Change { reason, .. } = change.into();
        let invalidation = vm.stage2.begin_invalidation_of(|| vm.hull(from, bytes));
        vm.for_each_place(from, bytes, |gfns| vm.zap_for(gfns, reason));
        invalidation
    }

    /// Ends an invalidation whose guard was [forgotten](core::mem::forget), because the host tells of the start and of
    /// the end by different calls.
    pub fn invalidate_end(&self) {
        self.inner().stage2.end_invalidation();
    }

    /// The page of host memory at `from` is in another frame from now on, or gets other rights: wherever the VM has it
    /// mapped, the entry is replaced in place, so that no vCPU has to fault for it. Where it is not mapped, it stays so.
    /// When this returns, no CPU uses the old frame for it.
    ///
    /// Inside of an invalidation of the page, that is between [`Vm::invalidate_start`] and its end; if the frame is
    /// another one, one that has left no right to write. May be called from inside
    /// [`HostMemory::resolve`](crate::HostMemory::resolve).
    pub fn change_pte(&self, from: W::Backing, change: &PageChange) {
        let vm = self.inner();
        let _ = change;
        vm.for_each_place(from, PAGE_SIZE, |gfns| vm.zap_for(gfns, Reason::Protect));
    }

    /// Whether the guest has accessed `bytes` bytes of host memory from `from` on since this was last asked: how many
    /// pages of it, where a block counts as all its pages.
    pub fn age(&self, from: W::Backing, bytes: u64) -> u64 {
        let vm = self.inner();
        let mut accessed = 0;
        vm.for_each_place(from, bytes, |gfns| {
            vm.stage2.age(gfns, vm.slice, |_, pages| accessed += pages);
        });
        accessed
    }

    /// The host's address space goes, and all the guest's memory with it. When this returns no CPU uses any frame that
    /// was mapped, and none is mapped again: vCPUs have left the guest and enter it no more, as after [`Vm::destroy`].
    ///
    /// Waits for vCPUs that are in the guest to come out, and for nothing else: no entry is visited, and no TLB asked,
    /// since nobody runs under the VM's VMIDs any more. May be called from inside
    /// [`HostMemory::resolve`](crate::HostMemory::resolve).
    pub fn release(&self) {
        let vm = self.inner();
        vm.close();
        vm.reload_roots();
    }
}

impl<W: World> Inner<W> {
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
