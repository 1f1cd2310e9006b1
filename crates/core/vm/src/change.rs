//! How the host says what it does to its memory.

use mayfly_platform::address::Pfn;

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
    /// It becomes shared until it is written (`fork`), or it is about to be written, and so gets a frame of its own.
    CopyOnWrite,
}

/// What may be done with a page of host memory, and so with the guest's memory behind which it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protection {
    /// Nothing.
    None,
    /// It may be read, and executed.
    ReadOnly,
    /// It may be written as well.
    ReadWrite,
}

/// A change that the host begins to make to a range of its memory: what
/// [`Vm::invalidate_start`](crate::Vm::invalidate_start) is told.
///
/// From a [`Reason`] alone comes the change that takes everything away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Change {
    /// Why.
    pub reason: Reason,
    /// The most that was allowed with any page of the range up to now.
    pub old: Protection,
    /// What the guest may go on doing, with the frames that are there, until the host says more: to go on reading while
    /// a page is compared or copied is [`Protection::ReadOnly`]. Not more than the host allows from the end on either,
    /// if nothing [is changed](crate::Vm::change_pte) until then.
    pub new: Protection,
}

impl From<Reason> for Change {
    fn from(reason: Reason) -> Self {
        Self { reason, old: Protection::ReadWrite, new: Protection::None }
    }
}

/// A page of host memory that comes to be in another frame, or gets other rights, between the start and the end of a
/// [`Change`]: what [`Vm::change_pte`](crate::Vm::change_pte) is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageChange {
    /// The frame that it was in.
    pub old: Pfn,
    /// The frame that it is in from now on; the same, if only rights change.
    pub new: Pfn,
    /// What may be done with it from now on.
    pub protection: Protection,
    /// Whether the two frames hold the same bytes, and nothing writes to either until `change_pte` has returned.
    pub same_contents: bool,
}
