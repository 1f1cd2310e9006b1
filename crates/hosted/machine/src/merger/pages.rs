//! The pages of an address space, as the merger sees them.

use mayfly_merge::{Group, Host, Looked, Merged, Sums};
use mayfly_platform::address::Pfn;

use crate::HostSpace;
use crate::address_space::{equal, words};

/// The pages of an address space, by their numbers in it.
pub(super) struct Pages<'a> {
    pub(super) space: &'a HostSpace,
    pub(super) sums: &'a Sums,
    /// Whether those of zeroes share a frame of their own kind.
    pub(super) shares_zeroes: bool,
}

impl Host for Pages<'_> {
    fn look(&self, page: u64) -> Option<Looked> {
        self.space.look(page, |found| {
            let sum = self.sums.of(words(self.space.arena(), found.frame));
            Looked { frame: found.frame, shared: found.shared, sum }
        })
    }

    fn frame(&self, page: u64) -> Option<Pfn> {
        self.space.look(page, |found| found.frame)
    }

    fn holds(&self, page: u64, frame: Pfn) -> bool {
        let arena = self.space.arena();
        self.space.look(page, |found| equal(arena, found.frame, frame)).unwrap_or(false)
    }

    fn equal(&self, page: u64, other: u64) -> bool {
        let arena = self.space.arena();
        self.space.look_at_two((page, other), |one, two| equal(arena, one, two)).unwrap_or(false)
    }

    fn references(&self, frame: Pfn) -> u64 {
        self.space.arena().references(frame)
    }

    fn zero_frame(&self, sum: u64) -> Option<Pfn> {
        let is_meant = self.shares_zeroes && sum == self.sums.of_zeroes();
        if is_meant { self.space.zero_frame().ok() } else { None }
    }

    fn is_zero_frame(&self, frame: Pfn) -> bool {
        self.space.is_zero_frame(frame)
    }

    fn zero_pages(&self) -> u64 {
        self.space.zero_pages()
    }

    fn close(&self, _group: Group, page: u64, frame: Pfn, wanted: u64) -> Option<Pfn> {
        let arena = self.space.arena();
        self.space
            .look(page, |found| (found.frame == frame).then(|| arena.get(frame)))
            .flatten()?;
        // The merger's reference is there; the contents stay from here on. Not where the page has another frame by now: then
        // this may be a page's that was moved, and that is written.
        if !self.space.close_page(page, frame) || self.sums.of(words(arena, frame)) != wanted {
            arena.put(frame);
            return None;
        }
        Some(frame)
    }

    fn merge(&self, first: u64, with: &[Pfn], became: &mut dyn FnMut(Merged)) {
        self.space.merge(first, with).into_iter().for_each(became);
    }

    fn put(&self, frame: Pfn) {
        self.space.arena().put(frame);
    }

    fn while_settled(&self, then: &mut dyn FnMut()) {
        self.space.while_settled(then);
    }

    fn settle(&self) {
        self.space.settle();
    }
}
