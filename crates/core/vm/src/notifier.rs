//! The notifier: calls by which the host tells a VM of changes to its memory.

use core::ops::Range;

use mayfly_memslot::{Gfn, PAGE_SIZE};
use mayfly_platform::address::Pfn;
use mayfly_stage2::{Announcement, Invalidation, Leaf, MemoryType, Owed, Replacement, Tables};

use crate::places::Place;
use crate::vm::{Inner, Vm};
use crate::{Change, PageChange, Protection, Reason, World};

impl<W: World> Vm<W> {
    /// The host is about to change what `bytes` bytes of its memory from `from` on are. When this returns, no CPU does
    /// more with what the VM had mapped of it than `change` leaves, and no fault maps anything of it until what this
    /// returns is dropped, which the host does when the change is made.
    ///
    /// What the guest may go on reading stays mapped, without its right to write. What becomes of a page meanwhile is
    /// told by [`Vm::change_pte`].
    ///
    /// May be called while other changes are under way, and from inside
    /// [`HostMemory::resolve`](crate::HostMemory::resolve).
    pub fn invalidate_start(
        &self,
        from: W::Backing,
        bytes: u64,
        change: impl Into<Change>,
    ) -> Invalidation<'_> {
        let (vm, change) = (self.inner(), change.into());
        let invalidation = vm.stage2.begin_invalidation_of(|announce| {
            vm.for_each_place(from, bytes, |place| announce(place.gfns));
        });
        if change.takes_away() {
            vm.for_each_place(from, bytes, |place| vm.take_away(&invalidation, place.gfns, change));
        }
        invalidation
    }

    /// Ends an invalidation that was [left](Invalidation::leave), because the host tells of the start and of the end by
    /// different calls.
    ///
    /// # Errors
    ///
    /// The announcement, if it is of another VM: it has not ended, and that VM can end it.
    pub fn invalidate_end(&self, announcement: Announcement) -> Result<(), Announcement> {
        self.inner().stage2.end_invalidation(announcement)
    }

    /// The page of host memory at `from` is in another frame from now on, or gets other rights. Wherever the VM has it
    /// mapped its entry is changed in place, so that no vCPU has to fault for it; where it is not mapped it stays so.
    /// When this returns, no CPU uses the old frame for it, or has more rights. Returns whether the VM had the page mapped
    /// anywhere when it came to be in another frame. If not, it has it nowhere until the announcement ends, and need not be told
    /// of rights that the page gets in the same bracket.
    ///
    /// Inside of an invalidation of the page, which `announcement` proves to be under way: what
    /// [`Vm::invalidate_start`] has returned. The host changes a page once at a time. May be called from inside
    /// [`HostMemory::resolve`](crate::HostMemory::resolve).
    ///
    /// Another frame comes in place only after an invalidation that has left no right to write, and with the same
    /// contents; otherwise the page is zapped. In a slot that is read-only, or logs writes, what becomes writable stays
    /// read-only: a write there has to fault. Where several VMs have the page, none may write to the new frame while
    /// another reads the old one: all are told that it is read-only, and then all that it is writable, in the frame
    /// that it has by then.
    ///
    /// # Panics
    ///
    /// If `announcement` is another VM's, or of other memory, and the VM has some of this.
    ///
    /// # Safety
    ///
    /// `change` is true, and the caller speaks for the VM's memory ([`HostMemory`](crate::HostMemory)): what it says is
    /// what [`resolve`](crate::HostMemory::resolve) could have said after the end of the announcement, with the same
    /// promises.
    ///
    /// - The guest may have frame [`PageChange::new`] behind the page at `from`, with the rights that
    ///   [`PageChange::protection`] leaves, from now on until it is taken away.
    /// - The two frames are of the same contents if [`PageChange::same_contents`] says so.
    ///
    /// It is a function of the VM's, so that the announcement is shown in the same call. A host that has its memory in
    /// one place and its VMs in another names the frame in the one, and calls this in the other: no value could prove
    /// the frame to this VM for as long as that announcement lasts, which the place that knows the frame does not see.
    ///
    /// ```compile_fail,E0133
    /// #![forbid(unsafe_code)]
    /// use mayfly_vm::platform::address::Pfn;
    /// use mayfly_vm::stage2::Announcement;
    /// use mayfly_vm::{PageChange, Protection, Vm, World};
    ///
    /// fn hand_out<W: World>(vm: &Vm<W>, bracket: &Announcement, page: W::Backing, old: Pfn, table: Pfn) {
    ///     let protection = Protection::ReadWrite;
    ///     let change = PageChange { old, new: table, protection, same_contents: true };
    ///     vm.change_pte(bracket, page, &change);
    /// }
    /// ```
    pub unsafe fn change_pte(
        &self,
        announcement: &Announcement,
        from: W::Backing,
        change: &PageChange,
    ) -> bool {
        // SAFETY: as the caller promises.
        unsafe { self.change_ptes(announcement, from, &[Some(*change)]) }
    }

    /// As [`Vm::change_pte`], of the pages from `from` on, those that change; with one invalidation of TLBs for each
    /// place where the VM has the run, instead of one for each page.
    ///
    /// # Panics
    ///
    /// As [`Vm::change_pte`], of the whole run.
    ///
    /// # Safety
    ///
    /// As [`Vm::change_pte`], of each page that changes.
    pub unsafe fn change_ptes(
        &self,
        announcement: &Announcement,
        from: W::Backing,
        changes: &[Option<PageChange>],
    ) -> bool {
        let (vm, mut was_mapped) = (self.inner(), false);
        let mut replace = |gfns, with: With<'_>| {
            let ready = |leaf: &Leaf| vm.ready_replacement(leaf.pfn, leaf.permissions);
            // SAFETY: as the caller promises of each page: they are replaced where a slot has them.
            was_mapped |= unsafe { vm.stage2.replace(announcement, gfns, vm.slice, with, ready) };
        };
        // SAFETY: as the caller promises.
        unsafe { vm.change_pages(announcement, from, changes, &mut replace) };
        was_mapped
    }

    /// As [`Vm::change_ptes`], but CPUs may go on reading the old frames of pages that come to be in others of the same
    /// contents, until what this returns [is paid](Owed::is_paid). As long as it is not, the host keeps the old frames
    /// as they are, and does not write to the new ones itself; the guest may be given the right to, which pays.
    ///
    /// So pages that are merged one by one need no invalidation each: those that a VM owes, 64 at most, go together, or
    /// with whatever invalidates them next.
    ///
    /// # Panics
    ///
    /// As [`Vm::change_ptes`].
    ///
    /// # Safety
    ///
    /// As [`Vm::change_ptes`]. Besides, the old frames stay the guest's to read as long as what this returns is not
    /// paid; if that is [forgotten](core::mem::forget), it may be for ever.
    pub unsafe fn change_ptes_owing(
        &self,
        announcement: &Announcement,
        from: W::Backing,
        changes: &[Option<PageChange>],
    ) -> Owed {
        let vm = self.inner();
        let mut owed = vm.stage2.owing_nothing();
        let mut replace = |gfns, with: With<'_>| {
            let ready = |leaf: &Leaf| vm.ready_replacement(leaf.pfn, leaf.permissions);
            // SAFETY: as the caller promises of each page: they are replaced where a slot has them.
            let more =
                unsafe { vm.stage2.replace_owing(announcement, gfns, vm.slice, with, ready) };
            owed.add(more);
        };
        // SAFETY: as the caller promises.
        unsafe { vm.change_pages(announcement, from, changes, &mut replace) };
        owed
    }

    /// Whether the guest has accessed `bytes` bytes of host memory from `from` on since this was last asked: how many
    /// pages of it, where a block counts as all its pages.
    pub fn age(&self, from: W::Backing, bytes: u64) -> u64 {
        let vm = self.inner();
        let mut accessed = 0;
        vm.for_each_place(from, bytes, |Place { gfns, .. }| {
            vm.stage2.age(gfns, vm.slice, |_, pages| accessed += pages);
        });
        accessed
    }

    /// The host's address space goes, and all the guest's memory with it. When this returns no CPU uses any frame that
    /// was mapped, and none ever will: vCPUs have left the guest and enter it no more, as after [`Vm::destroy`].
    ///
    /// Waits for vCPUs that are in the guest to come out, and for nothing else: no entry is visited and no TLB asked,
    /// since no vCPU runs under the VM's VMIDs any more. May be called from inside
    /// [`HostMemory::resolve`](crate::HostMemory::resolve).
    pub fn release(&self) {
        let vm = self.inner();
        vm.close();
        vm.reload_roots();
    }
}

impl Change {
    /// Whether the tables may have something that has to go.
    fn takes_away(self) -> bool {
        self.new < self.old || self.reason.is_read_past_caches()
    }
}

impl Reason {
    fn is_read_past_caches(self) -> bool {
        self == Self::Reclaim { coherent: false }
    }
}

/// Which pages come to be in other frames.
type With<'a> = &'a dyn Fn(Gfn) -> Option<Replacement>;

/// Has pages in other frames: those for which the second says so.
type Replace<'a> = &'a mut dyn FnMut(Range<Gfn>, With<'_>);

impl<W: World> Inner<W> {
    /// Makes `changes` to the pages from `from` on, wherever they are; frames are replaced by `replace`.
    ///
    /// # Safety
    ///
    /// As [`Vm::change_ptes`].
    unsafe fn change_pages(
        &self,
        announcement: &Announcement,
        from: W::Backing,
        changes: &[Option<PageChange>],
        replace: Replace<'_>,
    ) {
        let bytes = changes.len() as u64 * PAGE_SIZE;
        self.for_each_place(from, bytes, |place| {
            // Also where only the right to write goes, which needs no announcement by itself.
            assert!(
                self.stage2.is_announced(announcement, &place.gfns),
                "the change is not of what was announced"
            );
            self.change_in_place(announcement, &place, changes, replace);
        });
        let opens = |change: &PageChange| change.protection == Protection::ReadWrite;
        if !changes.iter().flatten().any(opens) {
            return;
        }
        // No CPU reads an old frame any more, wherever its page is mapped, except for what is owed, which is paid now.
        self.for_each_place(from, bytes, |place| {
            if place.writable {
                for (gfn, change) in place.changes(changes) {
                    if opens(&change) {
                        // SAFETY: as the caller promises: the slot allows it too.
                        unsafe { self.stage2.allow_writes(announcement, gfn, change.new) };
                    }
                }
            }
        });
    }

    /// Makes `changes` but for what they give.
    fn change_in_place(
        &self,
        announcement: &Announcement,
        place: &Place,
        changes: &[Option<PageChange>],
        replace: Replace<'_>,
    ) {
        let with = |gfn| {
            let PageChange { old, new, protection, same_contents } = place.change(gfn, changes)?;
            let moves = old != new && protection != Protection::None;
            moves.then_some(Replacement { old, new, same_contents })
        };
        if place.changes(changes).any(|(gfn, _)| with(gfn).is_some()) {
            if self.is_leaving_at(&place.gfns) {
                // The entry may still be that of another page, which has lost no rights, and goes here.
                self.flush_written(place.gfns.clone());
            }
            replace(place.gfns.clone(), &with);
        }
        for (gfn, change) in place.changes(changes) {
            let page = gfn..Gfn::new(gfn.get() + 1);
            match change.protection {
                Protection::None => {
                    self.flush_written(page.clone());
                    self.stage2.zap(announcement, page, Tables::Keep, self.slice);
                }
                Protection::ReadOnly if change.old == change.new => {
                    // A later change of the page takes nothing away any more, and so flushes nothing.
                    self.flush_written(page.clone());
                    self.stage2.write_protect(page, self.slice, |_, _| ());
                }
                _ => {}
            }
        }
    }

    /// Takes away what `change` does not leave of `gfns`.
    fn take_away(
        &self,
        announcement: &Announcement,
        gfns: Range<Gfn>,
        Change { reason, new, .. }: Change,
    ) {
        if reason != Reason::Exit {
            self.flush_written(gfns.clone());
        }
        if reason.is_read_past_caches() {
            return self.zap_and_clean(announcement, &gfns);
        }
        match (new, reason) {
            (Protection::None, Reason::Unmap | Reason::Exit) => {
                self.stage2.zap(announcement, gfns, Tables::Free, self.slice);
            }
            // The tables are going to be needed again.
            (Protection::None, _) => self.stage2.zap(announcement, gfns, Tables::Keep, self.slice),
            _ => self.stage2.write_protect(gfns, self.slice, |_, _| ()),
        }
    }

    fn zap_and_clean(&self, announcement: &Announcement, gfns: &Range<Gfn>) {
        self.stage2.zap_each(announcement, gfns.clone(), self.slice, |gfn, level, leaf| {
            if leaf.memory != MemoryType::WriteBack {
                return;
            }
            let first = gfn.max(gfns.start);
            let end = gfns.end.get().min(gfn.get() + level.pages());
            let into = first.get() - gfn.get();
            let pfn = leaf.pfn.get() + into;
            self.in_pieces(end - first.get(), |from, count| {
                self.cache.clean(Pfn::new(pfn + from), count);
            });
        });
    }
}
