//! Pages that lose their frames, or get others, as the kernel sees fit: they are swapped out, and migrated.

use std::ops::Range;

use mayfly_platform::address::Hva;
use mayfly_platform::memory::OutOfMemory;

use super::error::Error;
use super::notifier::{Change, Reason};
use super::numbers::{hvas, page, whole_pages};
use super::space::HostSpace;

impl HostSpace {
    /// Puts the contents of the page at `hva` into swap, and gives its frame back; the page has another when it is next
    /// resolved. A huge page goes on as pages. Returns whether there was anything to reclaim: false for a page that is
    /// not mapped, not touched, in swap already, or there for good ([`Backing`](super::Backing)).
    pub fn reclaim(&self, hva: Hva) -> bool {
        let _changes = self.changes();
        let page = page(hva);
        // It keeps a frame until it is taken out, since others' changes wait.
        let is_present = !self.present(page..page + 1).is_empty();
        if is_present {
            let change = Change::taking(hvas(&(page..page + 1)), Reason::Reclaim);
            self.bracket(&change, |mappings, store, released| {
                mappings.pages.swap_out(page, store, released);
            });
        }
        is_present
    }

    /// Moves the page at `hva` to another frame, which is its own, even if it shared the one that it was in. A huge
    /// page goes on as pages. Returns whether there was anything to move, as [`HostSpace::reclaim`].
    ///
    /// # Errors
    ///
    /// Where there is no other frame.
    pub fn migrate(&self, hva: Hva) -> Result<bool, OutOfMemory> {
        let page = page(hva);
        Ok(self.migrate_pages(page..page + 1)? > 0)
    }

    /// As [`HostSpace::migrate`], of all pages of `range`, as one change. Returns how many were moved.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`]; [`Error::OutOfMemory`], where there are not so many frames, with none moved.
    pub fn migrate_range(&self, range: Range<Hva>) -> Result<u64, Error> {
        Ok(self.migrate_pages(whole_pages(&range)?)?)
    }

    fn migrate_pages(&self, pages: Range<u64>) -> Result<u64, OutOfMemory> {
        let _changes = self.changes();
        let present = self.present(pages.clone());
        let mut frames = Vec::new();
        for _ in &present {
            match self.arena.allocate(0) {
                Ok(frame) => frames.push(frame),
                Err(error) => {
                    for frame in frames {
                        self.arena.free(frame, 0);
                    }
                    return Err(error);
                }
            }
        }
        if !present.is_empty() {
            let change = Change::taking(hvas(&pages), Reason::Migrate);
            self.bracket(&change, |mappings, store, released| {
                for (&page, &to) in present.iter().zip(&frames) {
                    // It has a frame still, since others' changes wait.
                    if !mappings.pages.migrate(page, to, store, released) {
                        released.push((to, 1));
                    }
                }
            });
        }
        Ok(present.len() as u64)
    }

    /// Those of `pages` that have a frame; waits for one that is just getting one of its own.
    fn present(&self, pages: Range<u64>) -> Vec<u64> {
        let _sharing = self.sharing();
        let mappings = self.mappings.read();
        let mapped = mappings.mapped(&pages).flatten();
        mapped.filter(|&page| mappings.pages.frame(page).is_some()).collect()
    }
}
