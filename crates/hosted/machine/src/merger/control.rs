//! A merger: the ranges that are registered with it, its tunables, and its statistics.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use mayfly_merge::{Group, Merger as Scan, Sums};
use mayfly_platform::address::Hva;
use mayfly_platform::memory::OutOfMemory;

use super::Statistics;
use super::pages::Pages;
use super::tunables::{Run, Tunables};
use crate::HostSpace;
use crate::address_space::{Error, Fault, whole_pages};
use crate::lock::lock;

/// A page merger of one address space.
#[derive(Debug)]
pub struct Merger {
    space: Arc<HostSpace>,
    tunables: Mutex<Tunables>,
    scan: Mutex<Scan>,
    sums: Sums,
}

impl Merger {
    /// With no ranges, and the tunables of a kernel that has just started; [`Run::Stop`] among them.
    ///
    /// # Panics
    ///
    /// If there is no memory for the key of its sums.
    pub fn new(space: Arc<HostSpace>) -> Self {
        let random = RandomState::new();
        let mut drawn = 0_u64;
        let sums = Sums::try_new(|| {
            drawn += 1;
            random.hash_one(drawn)
        });
        let sums = sums.expect("there is memory for a key");
        Self { space, tunables: Mutex::default(), scan: Mutex::default(), sums }
    }

    /// Lets pages of `range` be merged from now on, as `MADV_MERGEABLE` does.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`], also for memory that is there for good; [`Error::NotMapped`]; [`Error::OutOfMemory`], with some of
    /// it registered.
    pub fn register(&self, range: Range<Hva>) -> Result<(), Error> {
        let pages = whole_pages(&range)?;
        self.space.check_mergeable(&pages)?;
        Ok(self.scan().register(&self.pages(), Group::default(), pages)?)
    }

    /// Lets pages of `range` be merged no more, and gives those that are a frame of their own, as `MADV_UNMERGEABLE`
    /// does. To be called also for what is about to be unmapped: it is addresses that are registered, and what is
    /// mapped there later would be merged as well.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`]; [`Error::OutOfMemory`], with nothing registered any more, but some of it merged still; or nothing has changed.
    pub fn unregister(&self, range: Range<Hva>) -> Result<(), Error> {
        let pages = whole_pages(&range)?;
        let mut scan = self.scan();
        scan.unregister(&self.pages(), &pages)?;
        let mut mapped = self.space.mapped(&pages).into_iter();
        let unmerged = mapped.try_for_each(|pages| self.unmerge(&mut scan, pages));
        self.space.settle();
        scan.prune(&self.pages());
        Ok(unmerged?)
    }

    /// The tunables.
    pub fn tunables(&self) -> Tunables {
        *lock(&self.tunables)
    }

    /// Sets the tunables. With [`Run::Unmerge`], every page that is merged has a frame of its own when this returns.
    ///
    /// # Errors
    ///
    /// Where there are not so many frames; the tunables are set, and some pages merged still.
    pub fn set(&self, tunables: Tunables) -> Result<(), OutOfMemory> {
        *lock(&self.tunables) = tunables;
        self.space.settle();
        if tunables.run == Run::Unmerge {
            let mut scan = self.scan();
            let (mut from, mut unmerged) = (0, Ok(()));
            while unmerged.is_ok()
                && let Some(pages) = scan.range_after(from)
            {
                from = pages.end;
                unmerged = self.unmerge(&mut scan, pages);
            }
            scan.prune(&self.pages());
            return unmerged;
        }
        Ok(())
    }

    /// Looks at the next [`Tunables::pages_to_scan`] pages, but at none twice, whatever [`Tunables::run`] says. Returns
    /// how many that were.
    pub fn scan_batch(&self) -> u64 {
        let mut scan = self.scan();
        let tunables = self.tunables();
        self.batch(&mut scan, &tunables)
    }

    /// Has a [`MergerThread`](super::MergerThread) do a batch, if it is to. Returns the pause after it.
    pub(super) fn serve(&self) -> Option<Duration> {
        let mut scan = self.scan();
        // Asked under the scanner's lock: what was unmerged by `set` is not merged again when that has returned.
        let tunables = self.tunables();
        let has_scanned = tunables.run == Run::Merge && self.batch(&mut scan, &tunables) > 0;
        has_scanned.then(|| Duration::from_millis(tunables.sleep_millisecs))
    }

    /// Goes through all registered pages once, from wherever it is.
    pub fn scan_all(&self) {
        let before = self.full_scans();
        while self.full_scans() == before {
            if self.scan_batch() == 0 {
                return;
            }
        }
    }

    /// What was done so far, and what is shared at this moment. Waits for a batch under way.
    pub fn statistics(&self) -> Statistics {
        self.scan().statistics(&self.pages())
    }

    /// How often all pages have been gone through.
    fn full_scans(&self) -> u64 {
        self.scan().full_scans()
    }

    fn batch(&self, scan: &mut Scan, tunables: &Tunables) -> u64 {
        let pages = Pages { shares_zeroes: tunables.use_zero_pages, ..self.pages() };
        scan.scan(&pages, &tunables.limits(), tunables.pages_to_scan)
    }

    /// The pages, for what merges none.
    fn pages(&self) -> Pages<'_> {
        Pages { space: &self.space, sums: &self.sums, shares_zeroes: false }
    }

    fn unmerge(&self, scan: &mut Scan, pages: Range<u64>) -> Result<(), OutOfMemory> {
        for page in pages {
            let merged = self.space.look(page, |found| found.shared).unwrap_or(false);
            match if merged { self.space.unshare(page) } else { Ok(()) } {
                // What may not be written keeps what it shares.
                Ok(()) | Err(Fault::NotMapped | Fault::ReadOnly) => {}
                Err(Fault::OutOfMemory(error)) => return Err(error),
            }
            scan.unmerged(page);
        }
        Ok(())
    }

    fn scan(&self) -> MutexGuard<'_, Scan> {
        lock(&self.scan)
    }
}

impl Drop for Merger {
    /// Gives up its references; what is merged stays so.
    fn drop(&mut self) {
        self.scan().give_up(&self.pages());
        self.space.settle();
    }
}
