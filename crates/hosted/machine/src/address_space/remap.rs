//! Memory that goes to other addresses.

use std::ops::Range;

use mayfly_platform::address::Hva;
use mayfly_platform::memory::OutOfMemory;
use mayfly_stage2::Level;

use super::area::Area;
use super::error::Error;
use super::mappings::Mappings;
use super::notifier::{Change, Reason};
use super::numbers::{hva, page, whole_pages};
use super::space::HostSpace;

/// What new addresses have in common with the old ones: their remainder by this, so that huge pages stay so.
const ALIGN: u64 = Level::MIB2.pages();

impl HostSpace {
    /// Moves all that is mapped in `range` to other addresses, those from `to` on or such of its choice, as `mremap(2)`
    /// does; and tells where it is now. Frames stay what they are, also where they are shared. Notifiers hear that the
    /// range is unmapped ([`Reason::Unmap`]).
    ///
    /// # Errors
    ///
    /// With nothing changed: [`Error::Invalid`], also where something is mapped from `to` on, or nothing may be, and
    /// for memory that is there for good ([`Backing`](super::Backing)); [`Error::NotMapped`], where not all of the
    /// range is mapped; [`Error::OutOfMemory`] where there are no addresses left.
    pub fn mremap(&self, range: Range<Hva>, to: Option<Hva>) -> Result<Hva, Error> {
        let pages = whole_pages(&range)?;
        let count = pages.end - pages.start;
        let _changes = self.changes();
        let first = {
            let mappings = self.mappings.read();
            mappings.check_on_demand(&pages)?;
            match to {
                None => {
                    let beside = pages.start % ALIGN;
                    let first = mappings.areas.gap(count + beside, ALIGN).ok_or(OutOfMemory)?;
                    first + beside
                }
                Some(to) => {
                    let first = page(to);
                    if hva(first) != to || !mappings.areas.are_free(first..first + count) {
                        return Err(Error::Invalid);
                    }
                    first
                }
            }
        };
        self.bracket(&Change::taking(range, Reason::Unmap), |mappings, _, _| {
            mappings.relocate(&pages, first);
        });
        Ok(hva(first))
    }
}

impl Mappings {
    /// Moves `pages` to those from `first` on, which are free.
    fn relocate(&mut self, pages: &Range<u64>, first: u64) {
        self.split(pages);
        let to = first..first + (pages.end - pages.start);
        self.pages.insert(&to, false);
        self.pages.relocate(pages.start, &to);
        for (range, area) in self.areas.take(pages.clone()) {
            let moved = |page: u64| page - pages.start + first;
            self.areas.insert(moved(range.start), Area { end: moved(range.end), ..area });
        }
        self.forget_chunks(pages);
    }
}
