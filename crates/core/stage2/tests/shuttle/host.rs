//! The host's memory: which frame is behind a page of the guest, and which frames may be used no more.

use std::ops::Range;
use std::sync::atomic::{AtomicBool as Flag, Ordering};

use shuttle::sync::Mutex;
use shuttle::sync::atomic::{AtomicBool, AtomicU64};

/// Pages of the guest: as many as the format has.
pub(crate) const PAGES: u64 = 16;
/// Pages of a block.
pub(crate) const BLOCK: u64 = 4;
/// How often the host may change a page, at most.
const VERSIONS: u64 = 32;

/// Version `v` of page `p` is in frame `PAGES * (v + 1) + p`. What is checked, and what is not part of any protocol, is
/// kept behind the checker's back.
pub(crate) struct Host {
    versions: Vec<AtomicU64>,
    withdrawn: Vec<Flag>,
    /// Whether there is a memslot, for each block.
    slots: Vec<AtomicBool>,
    /// Whether a page is shared with somebody else, and so not to be written.
    shared: Vec<AtomicBool>,
    /// Frames that nobody may write: they are compared, copied, or shared.
    sealed: Vec<Flag>,
    /// Frames that a page has left for another of the same contents, and that others may still read for it; since the
    /// other was written they may not.
    outdated: Vec<Flag>,
    /// The frame that a page has left so, and that its host keeps.
    kept: Vec<AtomicU64>,
    /// Held while it is changed in which frame a page is, and whether it is shared.
    pub(crate) changes: Mutex<()>,
    /// Whether writes are logged.
    pub(crate) logging: AtomicBool,
    /// Whether all that is written from now on is logged.
    pub(crate) all_logged: Flag,
    dirty: Vec<Flag>,
}

impl Host {
    pub(crate) fn new() -> Self {
        let flags = |count| (0..count).map(|_| Flag::new(false)).collect();
        Self {
            versions: (0..PAGES).map(|_| AtomicU64::new(0)).collect(),
            withdrawn: flags(PAGES * (VERSIONS + 1)),
            slots: (0..PAGES / BLOCK).map(|_| AtomicBool::new(true)).collect(),
            shared: (0..PAGES).map(|_| AtomicBool::new(false)).collect(),
            sealed: flags(PAGES * (VERSIONS + 1)),
            outdated: flags(PAGES * (VERSIONS + 1)),
            kept: (0..PAGES).map(|_| AtomicU64::new(0)).collect(),
            changes: Mutex::new(()),
            logging: AtomicBool::new(false),
            all_logged: Flag::new(false),
            dirty: flags(PAGES),
        }
    }

    /// The frame behind `page`.
    pub(crate) fn pfn(&self, page: u64) -> u64 {
        frame(page, self.versions[page as usize].load(Ordering::Relaxed))
    }

    /// The first of the frames behind the block that `page` lies in, if they follow each other.
    pub(crate) fn block_pfn(&self, page: u64) -> Option<u64> {
        let first = page - page % BLOCK;
        let pfn = self.pfn(first);
        let fits = |offset| self.pfn(first + offset) == pfn + offset;
        (0..BLOCK).all(|offset| fits(offset) && !self.is_shared(first + offset)).then_some(pfn)
    }

    pub(crate) fn is_shared(&self, page: u64) -> bool {
        self.shared[page as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn set_shared(&self, page: u64, shared: bool) {
        self.shared[page as usize].store(shared, Ordering::Relaxed);
    }

    /// Whether a frame may be written no more, or again.
    pub(crate) fn seal(&self, pfn: u64, sealed: bool) {
        self.sealed[pfn as usize].store(sealed, Ordering::Relaxed);
    }

    /// Puts other frames behind `pages`, which are nobody else's. Returns those that there were.
    pub(crate) fn replace(&self, pages: Range<u64>) -> Vec<u64> {
        let _changes = self.changes.lock().unwrap();
        let replace = |page| {
            self.set_shared(page, false);
            self.move_page(page).0
        };
        pages.map(replace).collect()
    }

    /// Puts another frame behind `page`, with the changes held. Returns the old one and the new.
    pub(crate) fn move_page(&self, page: u64) -> (u64, u64) {
        let version = self.versions[page as usize].fetch_add(1, Ordering::Relaxed);
        (frame(page, version), frame(page, version + 1))
    }

    /// Nobody uses these frames any more.
    pub(crate) fn withdraw(&self, pfns: &[u64]) {
        for pfn in pfns {
            self.withdrawn[*pfn as usize].store(true, Ordering::Relaxed);
        }
    }

    /// The host keeps frame `pfn` of `page`, which others may read in the place of the one that the page is in.
    pub(crate) fn keep(&self, page: u64, pfn: u64) {
        self.kept[page as usize].store(pfn, Ordering::Relaxed);
    }

    pub(crate) fn has_slot(&self, page: u64) -> bool {
        self.slots[(page / BLOCK) as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn set_slot(&self, block: u64, present: bool) {
        self.slots[block as usize].store(present, Ordering::Relaxed);
    }

    pub(crate) fn mark_dirty(&self, page: u64) {
        self.dirty[page as usize].store(true, Ordering::Relaxed);
    }

    /// The guest accesses `page`, and finds frame `pfn` there.
    pub(crate) fn access(&self, page: u64, pfn: u64, write: bool) {
        assert_eq!(pfn % PAGES, page, "another page's frame");
        let withdrawn = self.withdrawn[pfn as usize].load(Ordering::Relaxed);
        assert!(!withdrawn, "frame {pfn:#x} was used after it was taken away");
        let sealed = self.sealed[pfn as usize].load(Ordering::Relaxed);
        assert!(!write || !sealed, "frame {pfn:#x} was written while it must not change");
        let outdated = self.outdated[pfn as usize].load(Ordering::Relaxed);
        assert!(!outdated, "frame {pfn:#x} was used, and what was written to another was missed");
        let kept = self.kept[page as usize].load(Ordering::Relaxed);
        if write && kept != 0 {
            self.outdated[kept as usize].store(true, Ordering::Relaxed);
        }
        if write && self.all_logged.load(Ordering::Relaxed) {
            assert!(self.dirty[page as usize].load(Ordering::Relaxed), "a write was not logged");
        }
    }
}

fn frame(page: u64, version: u64) -> u64 {
    assert!(version < VERSIONS);
    PAGES * (version + 1) + page
}
