//! The windows of changes, from start to end, as the guest's accesses meet them.

use std::sync::atomic::{AtomicU64, Ordering};

use mayfly_platform::address::Pfn;

/// Of each page of a VM: whether a change is under way that found it mapped.
#[derive(Debug)]
pub(super) struct Windows {
    /// The number of the change; 0 where there is none.
    pages: Box<[AtomicU64]>,
    /// The frame of the root that guests run on; 0 as long as none has run.
    top: AtomicU64,
    next: AtomicU64,
}

impl Windows {
    pub(super) fn new(pages: usize) -> Self {
        Self {
            pages: (0..pages).map(|_| AtomicU64::new(0)).collect(),
            top: AtomicU64::new(0),
            next: AtomicU64::new(0),
        }
    }

    /// The root that guests run on.
    pub(super) fn top(&self) -> Option<Pfn> {
        Some(self.top.load(Ordering::Relaxed)).filter(|top| *top != 0).map(Pfn::new)
    }

    pub(super) fn set_top(&self, top: Pfn) {
        self.top.store(top.get(), Ordering::Relaxed);
    }

    /// The change that is under way to a page, if there is one: not 0.
    #[inline]
    pub(super) fn at(&self, page: usize) -> u64 {
        self.pages[page].load(Ordering::Acquire)
    }

    /// Whether change `open`, which was under way to a page before an access, is so still.
    pub(super) fn is_within(&self, page: usize, open: u64) -> bool {
        open != 0 && self.at(page) == open
    }

    /// A change begins, to the pages that are mapped.
    pub(super) fn open(&self, pages: impl Iterator<Item = usize>) {
        let number = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        for page in pages {
            self.pages[page].store(number, Ordering::Release);
        }
    }

    /// A change is over.
    pub(super) fn close(&self, pages: impl Iterator<Item = usize>) {
        pages.for_each(|page| self.pages[page].store(0, Ordering::Release));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_is_in_a_window_if_one_change_was_under_way_before_and_after_it() {
        let windows = Windows::new(4);
        assert!(!windows.is_within(1, windows.at(1)));
        windows.open([1, 2].into_iter());
        let before = windows.at(1);
        assert!(windows.is_within(1, before) && !windows.is_within(1, 0));
        assert!(!windows.is_within(3, windows.at(3)));
        windows.close([1, 2].into_iter());
        windows.open([1].into_iter());
        assert!(!windows.is_within(1, before), "another change");
        windows.close([1].into_iter());
        assert_eq!(windows.at(1), 0);
    }
}
