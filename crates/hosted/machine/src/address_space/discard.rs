//! Memory that becomes again what it was when it was mapped.

use std::ops::Range;

use mayfly_platform::address::Hva;

use super::error::Error;
use super::notifier::{Change, Reason};
use super::numbers::whole_pages;
use super::pages::Held;
use super::space::HostSpace;

impl HostSpace {
    /// How many pages of `range` have a frame of their own, which they share with no other page and no image.
    ///
    /// # Errors
    ///
    /// As [`HostSpace::discard`].
    pub fn own_pages(&self, range: Range<Hva>) -> Result<u64, Error> {
        let pages = whole_pages(&range)?;
        let mappings = self.mappings.read();
        mappings.check_in_pages(&pages)?;
        let is_own = |page: &u64| matches!(mappings.pages.held(*page), Some(Held::Own(_)));
        Ok(mappings.pages.touched(&pages).filter(is_own).count() as u64)
    }

    /// Gives up what `range` holds, as `madvise(MADV_DONTNEED)` does: a page is what it was when it was mapped, zeroes or
    /// the [image's](HostSpace::map_image). Returns how many pages have given something up.
    ///
    /// Goes by the pages that were touched. Notifiers that can [do the same](super::Notifier::discard_start) are told which
    /// they are. A page that is first touched meanwhile may stay as it is.
    ///
    /// # Errors
    ///
    /// As [`HostSpace::freeze`], but that nothing is brought in.
    pub fn discard(&self, range: Range<Hva>) -> Result<u64, Error> {
        let pages = whole_pages(&range)?;
        let _changes = self.changes();
        let touched = {
            let _sharing = self.sharing();
            let mappings = self.mappings.read();
            mappings.check_in_pages(&pages)?;
            Runs::of(mappings.pages.touched(&pages))
        };
        if touched.0.is_empty() {
            return Ok(0);
        }
        let next = |from: u64| {
            let Range { start, end } = touched.next(from + pages.start);
            start - pages.start..end - pages.start
        };
        let change = Change::taking(range, Reason::Discard);
        self.bracket_by(
            &change,
            |notifier| notifier.discard_start(&change, &next),
            |mappings, store, released| {
                mappings.split(&pages);
                for run in &touched.0 {
                    mappings.pages.remove(run, store, released);
                }
            },
        );
        Ok(touched.0.iter().map(|run| run.end - run.start).sum())
    }
}

/// Pages, those that follow each other together, in order.
struct Runs(Vec<Range<u64>>);

impl Runs {
    fn of(pages: impl Iterator<Item = u64>) -> Self {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for page in pages {
            match runs.last_mut() {
                Some(last) if last.end == page => last.end += 1,
                _ => runs.push(page..page + 1),
            }
        }
        Self(runs)
    }

    /// The first pages from `from` on that follow each other; an empty range behind all, if there are none.
    fn next(&self, from: u64) -> Range<u64> {
        let at = self.0.partition_point(|run| run.end <= from);
        self.0.get(at).map_or(u64::MAX..u64::MAX, |run| run.start.max(from)..run.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_led_to_run_by_run() {
        let runs = Runs::of([3, 4, 5, 9, 11, 12].into_iter());
        let led = |from| runs.next(from);
        assert_eq!([led(0), led(4), led(6), led(10)], [3..6, 4..6, 9..10, 11..13]);
        assert!(led(13).is_empty() && led(13).start > 13);
    }
}
