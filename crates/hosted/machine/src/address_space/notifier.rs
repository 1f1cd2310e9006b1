//! Notifiers: what an address space tells its users when it changes.

use std::ops::Range;

use mayfly_platform::address::{Hva, PAGE_SIZE, Pfn};
use mayfly_stage2::Owed;
pub use mayfly_vm::PageChange;
use mayfly_vm::Protection as Rights;

/// Why memory is taken away, or changed while it is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// It is unmapped, or goes to other addresses: `munmap(2)`, `mremap(2)`.
    Unmap,
    /// The address space ends.
    Exit,
    /// Its contents go to another frame.
    Migrate,
    /// Its contents go to swap, and its frame gets another use.
    Reclaim,
    /// It becomes again what it was when it was mapped: `madvise(MADV_DONTNEED)`.
    Discard,
    /// It may be written no more: `mprotect(2)`.
    Protect,
    /// A frame of equal contents takes its frame's place, to be shared.
    Merge,
    /// Its frames are shared until they are written, as by `fork(2)`; or it is about to be written, and a frame of its
    /// own takes the shared one's place.
    CopyOnWrite,
}

/// A change to a range of an address space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Whole pages.
    pub range: Range<Hva>,
    /// Why.
    pub reason: Reason,
    /// The most that was allowed with any page of it.
    pub old: Rights,
    /// What may go on meanwhile, with the frames that are there.
    pub new: Rights,
}

impl Change {
    /// One that takes everything away.
    pub fn taking(range: Range<Hva>, reason: Reason) -> Self {
        Self { range, reason, old: Rights::ReadWrite, new: Rights::None }
    }

    /// One that takes away the right to write, from what had `old`.
    pub fn protecting(range: Range<Hva>, reason: Reason, old: Rights) -> Self {
        Self { range, reason, old, new: Rights::ReadOnly }
    }
}

/// A user of frames of an address space, which has to let go of them before they change, as KVM does by Linux's
/// MMU notifiers (`include/linux/mmu_notifier.h`).
///
/// Every change is bracketed: each notifier's [`Notifier::invalidate_start`], then the change, then each one's
/// [`Notifier::invalidate_end`]. Changes of one address space come one after the other, except that a shared page may
/// get a frame of its own meanwhile ([`Reason::CopyOnWrite`]): the fault of a vCPU brings that about, which must not
/// wait for a change that may be waiting for the vCPU.
///
/// While a notifier is called, the space can be resolved and read, by it too. Changing the space or its notifiers from
/// there would wait for itself; so would writing to what is shared, and reading a page whose frame
/// [changes](Notifier::change_pte).
///
/// A notifier that panics ends the program: it may still use frames that the space is about to give to another user, and
/// other threads wait for the end of the change.
pub trait Notifier: Send + Sync {
    /// The range is about to change. When this returns, the notifier does no more with the frames of it than
    /// [`Change::new`] says; and what it resolves before the end it must not use after.
    fn invalidate_start(&self, change: &Change);

    /// As [`Notifier::invalidate_start`], where of the range only those pages go that `next` leads to. It says which are next,
    /// from some page on, counted from the first of the range: of those that follow each other, the first and the one behind
    /// the last; and an empty range behind all, if there are none. A notifier that lets go of the whole range need not do
    /// anything else.
    fn discard_start(&self, change: &Change, next: &dyn Fn(u64) -> Range<u64>) {
        let _ = next;
        self.invalidate_start(change);
    }

    /// Between start and end: the page at `page` is in another frame from now on. When this returns, the notifier uses
    /// the old one no more. Nor does it write to the new one, whatever its rights, before it is
    /// [let](Notifier::allow_writes), for others may still read the old one. A notifier that has not kept the page since the
    /// start need not do anything.
    fn change_pte(&self, page: Hva, change: &PageChange) {
        let _ = (page, change);
    }

    /// As [`Notifier::change_pte`], of the pages from `first` on, those that change: all the same if one after the
    /// other.
    fn change_ptes(&self, first: Hva, changes: &[Option<PageChange>]) {
        for (page, change) in (first.get()..).step_by(PAGE_SIZE as usize).zip(changes) {
            if let Some(change) = change {
                self.change_pte(Hva::new(page), change);
            }
        }
    }

    /// As [`Notifier::change_ptes`], but a VM that has used the old frames may go on reading them for what the pages hold, until
    /// what this returns is paid. Nothing, if it uses them no more.
    fn change_ptes_owing(&self, first: Hva, changes: &[Option<PageChange>]) -> Option<Owed> {
        self.change_ptes(first, changes);
        None
    }

    /// Between start and end: the page at `page` may be written, in its new frame, which is `frame`; every notifier has
    /// heard of that. A notifier that leaves this to the next write after the end need not do anything.
    fn allow_writes(&self, page: Hva, frame: Pfn) {
        let _ = (page, frame);
    }

    /// The range has changed, and may be resolved and used again.
    fn invalidate_end(&self, change: &Change);
}
