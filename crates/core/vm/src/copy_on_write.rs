//! A page that gets a frame of its own, because it is about to be written.
//!
//! The vCPU that writes first faults, and the host copies the page while it is [asked](crate::HostMemory::resolve). Other vCPUs go
//! on reading the old frame meanwhile. They may have it mapped, or be about to map it.
//!
//! 1. The page is announced, wherever it is. No fault maps anything of it from then on. Faults that are under way are
//!    refused, as the announcement's \[announce\] pairs with their \[install\] ([`mayfly_stage2::Stage2::sample`]).
//! 2. The host copies.
//! 3. Wherever the VM has the old frame, it has the new one in place, to be read. When no CPU reads the old frame any more, the
//!    guest may write to the new one.
//! 4. Faults find the new frame, and the announcement ends.
//!
//! Mostly no CPU has the old frame: a fork of a VM, say, writes what it has not read. Then step 3 is a walk to an entry that is
//! empty, and no TLB is asked. What the walk denies stays denied until the announcement ends.

use mayfly_memslot::{Gfn, PAGE_SIZE};
use mayfly_platform::address::Pfn;

use crate::{PageChange, Protection, Vm, World};

/// Places in the guest that are remembered. Host memory is rarely in more.
const FEW: usize = 4;

impl<W: World> Vm<W> {
    /// The page of host memory at `from`, to which no guest may write, gets frame `new` in place of `old`. `copy` makes their
    /// bytes the same. `found` has [`resolve`](crate::HostMemory::resolve) find the new frame, to be written.
    ///
    /// The whole bracket in one call: [`Vm::invalidate_start`], [`Vm::change_pte`] in two steps, and the end. Where no CPU has the page
    /// mapped, it takes less. Of memory that one VM has. If several VMs have it, all are told of each step before the next
    /// one.
    ///
    /// May be called from inside [`HostMemory::resolve`](crate::HostMemory::resolve), which then says that the page
    /// [has changed](crate::Resolved::changed). Waits for TLBs at most. `copy` and `found` run one after the other; neither begins an
    /// invalidation of this VM.
    ///
    /// # Safety
    ///
    /// The caller speaks for the VM's memory, as for [`Vm::change_pte`]. No guest may write to the old frame, and nothing else
    /// writes to either before `found` is called. From then on the guest may have the new frame behind the page, and write it.
    ///
    /// ```compile_fail,E0133
    /// #![forbid(unsafe_code)]
    /// use mayfly_vm::platform::address::Pfn;
    /// use mayfly_vm::{Vm, World};
    ///
    /// fn hand_out<W: World>(vm: &Vm<W>, page: W::Backing, old: Pfn, table: Pfn) {
    ///     vm.copy_on_write(page, old, table, || (), || ());
    /// }
    /// ```
    pub unsafe fn copy_on_write(
        &self,
        from: W::Backing,
        old: Pfn,
        new: Pfn,
        copy: impl FnOnce(),
        found: impl FnOnce(),
    ) {
        let vm = self.inner();
        let mut places = Places::new();
        let announced = vm.stage2.begin_invalidation_of(|announce| {
            vm.for_each_place(from, PAGE_SIZE, |place| {
                places.note(place.gfns.start);
                announce(place.gfns);
            });
        });
        copy();
        if !places.any(|gfn| vm.stage2.may_be_in_use(gfn)) {
            found();
            return;
        }
        let protection = Protection::ReadOnly;
        let closed = PageChange { old, new, protection, same_contents: true };
        // SAFETY: as the caller promises.
        let was_mapped = unsafe { self.change_pte(&announced, from, &closed) };
        // Now no CPU has the old frame, and none has written to the new one.
        found();
        if was_mapped {
            let opened = PageChange { old: new, protection: Protection::ReadWrite, ..closed };
            // SAFETY: as above.
            unsafe { self.change_pte(&announced, from, &opened) };
        }
    }
}

/// Where a page is in the guest.
struct Places {
    first: [Gfn; FEW],
    /// Of how many it was told.
    count: usize,
}

impl Places {
    const fn new() -> Self {
        Self { first: [Gfn::new(0); FEW], count: 0 }
    }

    fn note(&mut self, gfn: Gfn) {
        if let Some(place) = self.first.get_mut(self.count) {
            *place = gfn;
        }
        self.count += 1;
    }

    /// Whether `is` is true of one of them, or may be, because there are more than it remembers.
    fn any(&self, is: impl FnMut(Gfn) -> bool) -> bool {
        match self.first.get(..self.count) {
            Some(all) => all.iter().copied().any(is),
            None => true,
        }
    }
}
