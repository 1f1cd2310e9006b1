//! How far the reclaim of a root has come, and how its tables are freed.

use alloc::boxed::Box;
use core::ops::ControlFlow;
use core::ptr::NonNull;

use mayfly_platform::address::{Gfn, Pfn};
use mayfly_platform::lock::LockGuard;
use mayfly_platform::observe::Step;

use crate::level::below_of;
use crate::list::List;
use crate::range::{Budget, Stop};
use crate::root::Root;
use crate::{Entry, Format, Level, State};

/// What the caller that frees has.
pub(super) struct Freeing<F: Format> {
    pub(super) present: Option<Work<F>>,
    pub(super) gone: Gone<F>,
}

impl<F: Format> Freeing<F> {
    /// Releases the lock, and then drops what is gone.
    pub(super) fn release(mut this: LockGuard<'_, Self>) {
        let gone = this.gone.take();
        drop(this);
        drop(gone);
    }
}

/// Roots of which nothing is left but what they share with their VM. With the last of them that goes, too: then the VM's
/// callbacks and devices run what they like. So this is dropped with no lock held.
pub(super) struct Gone<F: Format>(List<F>);

impl<F: Format> Gone<F> {
    pub(super) fn new() -> Self {
        Self(List::new(|root| &root.next))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds one, to which no other reference exists.
    pub(super) fn push(&mut self, root: NonNull<Root<F>>) {
        self.0.push(root);
    }

    fn take(&mut self) -> Self {
        core::mem::replace(self, Self::new())
    }
}

impl<F: Format> Drop for Gone<F> {
    fn drop(&mut self) {
        while let Some(root) = self.0.pop() {
            // SAFETY: it was put there with the only reference.
            drop(unsafe { Box::from_raw(root.as_ptr()) });
        }
    }
}

/// The root that is being reclaimed, and how far.
pub(super) struct Work<F: Format> {
    pub(super) root: NonNull<Root<F>>,
    pub(super) stage: Stage,
}

// SAFETY: as for `List`.
unsafe impl<F: Format> Send for Work<F> {}

#[derive(Clone, Copy)]
pub(super) enum Stage {
    /// Waiting for readers, references and vCPUs in their guests.
    Held,
    /// Freeing tables, from this frame on.
    Tables(Gfn),
    /// Waiting until what its VM had buried by then is freed, which it may have been noted for.
    Buried,
}

/// How far it has come.
pub(super) enum Advanced<F: Format> {
    Done,
    Spent(Work<F>),
    Waits(Work<F>),
}

impl<F: Format> Root<F> {
    /// Frees every table below `table`, a table of `level`, from the one that holds `from` on; `from` goes along.
    pub(super) fn free_tables(
        &self,
        table: Pfn,
        level: Level,
        from: &mut Gfn,
        budget: &mut Budget<'_>,
    ) -> ControlFlow<Stop> {
        if level == Level::PAGE {
            return ControlFlow::Continue(());
        }
        let end = if level == F::TOP {
            Self::LIMIT.get()
        } else {
            level.above().first(*from).get() + level.above().pages()
        };
        // Only where there may be tables.
        while from.get() < end
            && let Some((next, group_end)) = self.children().next::<F>(level, *from)
        {
            *from = next;
            while *from < group_end {
                let after = level.first(*from).get() + level.pages();
                let cell = self.cell(table, level, *from);
                if let State::Table(below) = cell.load().state(level) {
                    self.free_tables(below, below_of(level), from, budget)?;
                    cell.fill(Entry::EMPTY);
                    self.free_table(below);
                }
                *from = Gfn::new(after);
            }
            // Not after the last: a later slice finds the next table then, and not this one, which is to be freed.
            if from.get() < end {
                let pages = group_end.get() - level.first(next).get();
                budget.spend((pages / level.pages()) as u32)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Frees the top of a root to which no other reference exists, and whose tables below are gone. The root itself is
    /// left, with what it shares with its VM.
    ///
    /// # Safety
    ///
    /// As for [`Root::discard`].
    pub(super) unsafe fn free_top(root: NonNull<Self>) {
        // SAFETY: as the caller promises.
        let root = unsafe { root.as_ref() };
        let gone = Step::RootGone { top: root.top() };
        root.space().tables.observing(|| (), |()| Some(gone));
        root.space().tables.free(root.top(), F::ROOT_ORDER);
    }

    /// Frees all of such a root, of a VM that stays.
    ///
    /// # Safety
    ///
    /// `root` came from [`Root::try_new`], and the caller has its only reference, which is used up.
    pub(crate) unsafe fn discard(root: NonNull<Self>) {
        // SAFETY: as the caller promises.
        unsafe {
            Self::free_top(root);
            drop(Box::from_raw(root.as_ptr()));
        }
    }
}
