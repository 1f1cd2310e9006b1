//! How Linux told KVM of changes to host memory before: by the range alone, without the reason.
//!
//! Both designs act on Mayfly's tables, in the place of Mayfly's own notifier. They do not know the reason. So they zap a
//! range as if it were unmapped for good: with its tables, in either format. arm64's KVM does so
//! (`stage2_unmap_walker`, `arch/arm64/kvm/hyp/pgtable.c`); x86's TDP MMU zaps only leaves (`tdp_mmu_zap_leafs`).

use std::ops::Range;

use mayfly_machine::address_space::{Change, Notifier, PageChange, Reason, Rights};
use mayfly_machine::{Brackets, MachineWorld};
use mayfly_memslot::Hva;
use mayfly_platform::address::{Gfn, PAGE_SHIFT};
use mayfly_stage2::{Announcement, Format, Level, Replacement, Slice, Stage2, Tables};
use mayfly_vm::Vm;

/// A VM whose memory is one slot at guest address 0, and where that is in the host.
#[derive(Debug)]
pub(crate) struct Memory<F: Format> {
    vm: Vm<MachineWorld<F>>,
    hvas: Range<Hva>,
    brackets: Brackets,
}

impl<F: Format> Memory<F> {
    pub(crate) fn new(vm: Vm<MachineWorld<F>>, hvas: Range<Hva>) -> Self {
        Self { vm, hvas, brackets: Brackets::default() }
    }

    fn stage2(&self) -> &Stage2<F> {
        self.vm.stage2()
    }

    fn gfn(&self, hva: Hva) -> Gfn {
        Gfn::new((hva.get() - self.hvas.start.get()) >> PAGE_SHIFT)
    }

    /// Announces a change, which is all that faults in flight need.
    fn announce(&self, change: &Change) -> Range<Gfn> {
        let gfns = self.gfn(change.range.start)..self.gfn(change.range.end);
        self.brackets.open(change, self.stage2().begin_invalidation(&gfns).leave());
        gfns
    }

    fn end(&self, change: &Change) {
        let ended = self.stage2().end_invalidation(self.brackets.close(change));
        ended.expect("this VM has announced it");
    }

    /// Shows `then` what announces a change that `gfns` are part of.
    fn within(&self, gfns: &Range<Gfn>, then: impl FnOnce(&Announcement)) {
        let hva = |gfn: Gfn| Hva::new(self.hvas.start.get() + (gfn.get() << PAGE_SHIFT));
        self.brackets.within(&(hva(gfns.start)..hva(gfns.end)), then);
    }

    fn zap(&self, gfns: Range<Gfn>) {
        // Less than a table maps takes none with it; and only then is this called from inside a section, where nobody
        // may wait for others to leave theirs.
        let pages = gfns.end.get() - gfns.start.get();
        let tables = if pages < Level::MIB2.pages() { Tables::Keep } else { Tables::Free };
        self.within(&gfns.clone(), |announcement| {
            self.stage2().zap(announcement, gfns, tables, Slice::default());
        });
    }
}

/// Zaps the range at the start of every change, and ignores `change_pte`, as Linux does since v6.10; and did before, as
/// `change_pte` never found an entry to change (`virt/kvm/kvm_main.c`).
#[derive(Debug)]
pub(crate) struct Invalidate<F: Format>(pub(crate) Memory<F>);

impl<F: Format> Notifier for Invalidate<F> {
    fn invalidate_start(&self, change: &Change) {
        let gfns = self.0.announce(change);
        self.0.zap(gfns);
    }

    fn invalidate_end(&self, change: &Change) {
        self.0.end(change);
    }
}

/// Takes nothing away at the start of a break, and at that of a merge no more than the right to write; then does what
/// `change_pte` says: replaces the frame, if it is to be read only, and zaps the page, if it may be written
/// (`kvm_set_pte_rmapp`, `arch/x86/kvm/mmu.c`). As Jérôme Glisse proposed in 2019 (*Restore `change_pte` optimization to
/// its former glory*).
#[derive(Debug)]
pub(crate) struct ChangePte<F: Format>(pub(crate) Memory<F>);

impl<F: Format> Notifier for ChangePte<F> {
    fn invalidate_start(&self, change: &Change) {
        let gfns = self.0.announce(change);
        match (change.reason, change.old) {
            // For Linux's merger this is a `change_pte` of its own: the same frame, write-protected.
            (Reason::Merge, Rights::ReadWrite) => {
                self.0.stage2().write_protect(gfns, Slice::default(), |_, _| ());
            }
            (Reason::Merge, _) | (Reason::CopyOnWrite, Rights::ReadOnly) => {}
            _ => self.0.zap(gfns),
        }
    }

    fn change_pte(&self, page: Hva, change: &PageChange) {
        let gfn = self.0.gfn(page);
        let gfns = gfn..Gfn::new(gfn.get() + 1);
        let PageChange { old, new, protection, same_contents } = *change;
        if protection == Rights::ReadOnly {
            let with = Replacement { old, new, same_contents };
            self.0.within(&gfns.clone(), |announcement| {
                let stage2 = self.0.stage2();
                // SAFETY: the space, which knows the frames, says what it has done.
                unsafe {
                    stage2.replace(announcement, gfns, Slice::default(), |_| Some(with), |_| ());
                }
            });
        } else {
            self.0.zap(gfns);
        }
    }

    fn invalidate_end(&self, change: &Change) {
        self.0.end(change);
    }
}
