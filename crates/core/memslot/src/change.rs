//! A change of the slots, before and after it is published.

use core::fmt;

use mayfly_platform::lock::LockGuard;
use mayfly_srcu::{Rcu, RcuBox, Retired};

use crate::{Backing, Edit, Snapshot};

/// A change that no reader finds yet. It comes to nothing if it is dropped.
#[must_use = "nobody finds a change that is not published"]
pub struct Prepared<'a, B: Backing> {
    edit: Edit<B>,
    next: RcuBox<Snapshot<B>>,
    space: &'a Rcu<Snapshot<B>>,
    _writer: LockGuard<'a, ()>,
}

impl<'a, B: Backing> Prepared<'a, B> {
    pub(crate) fn new(
        edit: Edit<B>,
        next: RcuBox<Snapshot<B>>,
        space: &'a Rcu<Snapshot<B>>,
        writer: LockGuard<'a, ()>,
    ) -> Self {
        Self { edit, next, space, _writer: writer }
    }

    /// What will be changed.
    pub fn edit(&self) -> &Edit<B> {
        &self.edit
    }

    /// Has sections that begin from now on find the change.
    pub fn publish(self) -> Change<B> {
        let Self { edit, next, space, .. } = self;
        let generation = next.generation();
        let mut retired = space.replace(next);
        // Older snapshots may have the log too. They go no later than this one, which answers for it.
        retired.hold(edit.dropped_log());
        Change { edit, generation, retired }
    }
}

impl<B: Backing> fmt::Debug for Prepared<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").field("edit", &self.edit).finish_non_exhaustive()
    }
}

/// A change that is published: sections that begin from now on find the new slots. Those that began before may still
/// be using the old ones.
///
/// Dropped, it leaves the old snapshot to be freed later ([`Retired`]).
#[derive(Debug)]
#[must_use = "say what becomes of the old snapshot: `settle`, or a method of `retired`"]
pub struct Change<B: Backing> {
    /// What was changed.
    pub edit: Edit<B>,
    /// The generation of the new snapshot.
    pub generation: u64,
    /// The old snapshot. Deferred, it counts against the bounds of its domain with the size of its arrays, and with
    /// that of a dirty log that no later snapshot has (one bit a page), whether or not the edit keeps that for longer.
    pub retired: Retired<Snapshot<B>>,
}

impl<B: Backing> Change<B> {
    /// Waits as long as the kind of change needs.
    ///
    /// A created slot takes nothing from anybody: a section that still reads the old snapshot behaves as if it had come
    /// before the change, which it may have. The call does not wait, and the old snapshot is freed later.
    ///
    /// All other changes allow their caller something: the memory of a deleted slot may be given to another user, the
    /// old place of a moved one is free, what is written from now on is in the log that was switched on, and a log that
    /// was switched off is final. That is true when the last reader of the old snapshot is gone, so this waits for it,
    /// expedited, unless none is inside. Must not be called from inside a section.
    pub fn settle(self) -> Edit<B> {
        match self.edit {
            Edit::Create { .. } => self.retired.defer(),
            Edit::Delete { .. } | Edit::Move { .. } | Edit::Flags { .. } => {
                drop(self.retired.synchronize_expedited());
            }
        }
        self.edit
    }
}
