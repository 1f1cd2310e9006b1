//! A run of pages that comes to share frames, step by step: [`mayfly_merge::share`] has the order.

use mayfly_merge::{Merged, Steps};
use mayfly_platform::address::Pfn;
use mayfly_stage2::Owed;
use mayfly_vm::Protection as Rights;

use super::notifier::{Change, Notifier, PageChange};
use super::numbers::hva;
use super::registry::Registered;
use super::sharing::Looked;
use super::space::HostSpace;

/// The run. Whoever makes the change has the locks of a merge.
pub(super) struct Run<'a, F> {
    space: &'a HostSpace,
    registered: Registered,
    change: Change,
    first: u64,
    /// What each page is to share.
    with: &'a [Pfn],
    /// Whether a page that has the one frame may take the other.
    may_take: F,
    /// What there was of each page.
    found: Vec<Option<Looked>>,
    /// The frames that pages leave, and what VMs owe for them.
    released: (Vec<Pfn>, Vec<Owed>),
    pub(super) became: Vec<Merged>,
}

impl<'a, F: Fn(Pfn, Pfn) -> bool> Run<'a, F> {
    pub(super) fn new(
        space: &'a HostSpace,
        (first, with): (u64, &'a [Pfn]),
        change: Change,
        may_take: F,
    ) -> Self {
        let registered = space.registered();
        let (found, became, released) = (Vec::new(), Vec::new(), Default::default());
        Self { space, registered, change, first, with, may_take, found, released, became }
    }
}

impl<F: Fn(Pfn, Pfn) -> bool> Steps for Run<'_, F> {
    fn protect(&mut self) {
        self.registered.tell(|notifier| notifier.invalidate_start(&self.change));
    }

    fn close(&mut self) {
        self.found = self.space.close(&(self.first..self.first + self.with.len() as u64));
    }

    fn compare(&mut self) {
        let became = |(held, &with): (&Option<Looked>, &Pfn)| match held {
            Some(Looked { frame, .. }) if *frame == with => Merged::Before,
            Some(Looked { frame, .. }) if (self.may_take)(*frame, with) => Merged::Now,
            _ => Merged::No,
        };
        self.became = self.found.iter().zip(self.with).map(became).collect();
    }

    fn replace(&mut self) {
        let Self { space, first, with, .. } = self;
        let arena = space.arena();
        let mut released = Vec::new();
        let mut changes = vec![None; with.len()];
        {
            let mut mappings = space.mappings.write();
            for (at, (held, &new)) in self.found.iter().zip(*with).enumerate() {
                let Some(Looked { frame: old, shared }) = *held else { continue };
                let page = *first + at as u64;
                if self.became[at] == Merged::Now {
                    arena.get(new);
                    mappings.pages.share(page, new);
                    released.push(old);
                    let protection = Rights::ReadOnly;
                    changes[at] = Some(PageChange { old, new, protection, same_contents: true });
                } else if self.became[at] == Merged::No && !shared {
                    mappings.pages.own(page, old);
                }
            }
        }
        let owed = |notifier: &dyn Notifier| notifier.change_ptes_owing(hva(*first), &changes);
        self.released = (released, self.registered.ask(owed).flatten().collect());
    }

    fn end(&mut self) {
        self.registered.tell(|notifier| notifier.invalidate_end(&self.change));
        let (frames, owed) = std::mem::take(&mut self.released);
        self.space.held.hold(self.space.arena(), frames, owed);
    }
}
