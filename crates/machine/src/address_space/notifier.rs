//! Who is told when an address space changes.

use std::ops::Range;

use mayfly_platform::address::Hva;

/// Why memory is taken away, or changed under whoever uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// It is unmapped: `munmap(2)`.
    Unmap,
    /// The address space ends.
    Exit,
    /// Its contents go to another frame.
    Migrate,
    /// Its contents go to swap, its frame to somebody else.
    Reclaim,
    /// It may be written no more: `mprotect(2)`.
    Protect,
    /// A frame of equal contents takes its frame's place, to be shared.
    Merge,
    /// A frame of its own takes a shared frame's place, to be written.
    CopyOnWrite,
    /// It is looked at whether it is used.
    Age,
}

/// A change to a range of an address space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Whole pages.
    pub range: Range<Hva>,
    /// Why.
    pub reason: Reason,
}

/// Somebody who uses frames of an address space and has to let go of them before they change, as KVM does by Linux's
/// MMU notifiers (`include/linux/mmu_notifier.h`).
///
/// Every change is bracketed: each notifier's [`Notifier::invalidate_start`], then the change, then each one's
/// [`Notifier::invalidate_end`]. Changes of one address space come one after the other, so brackets do not overlap.
/// While a notifier is called, the space can be resolved, read and written, by it too; changing the space or its
/// notifiers from there would wait for itself.
pub trait Notifier: Send + Sync {
    /// The range is about to change. When this returns, the notifier uses no frame of it any more; and what it resolves
    /// before the end it must not use after.
    fn invalidate_start(&self, change: &Change);

    /// The range has changed, and may be resolved and used again.
    fn invalidate_end(&self, change: &Change);
}
