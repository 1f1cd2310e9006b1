//! Addresses, and the numbers of their pages.

use std::ops::Range;

use mayfly_platform::address::{Hpa, Hva, PAGE_SHIFT, PAGE_SIZE, Pfn};

use super::error::Error;

pub(super) fn page(hva: Hva) -> u64 {
    hva.get() >> PAGE_SHIFT
}

pub(super) fn hva(page: u64) -> Hva {
    Hva::new(page << PAGE_SHIFT)
}

pub(super) fn hvas(pages: &Range<u64>) -> Range<Hva> {
    hva(pages.start)..hva(pages.end)
}

/// The address of `hva` in its page's frame.
pub(super) fn hpa(frame: Pfn, hva: Hva) -> Hpa {
    Hpa::new((frame.get() << PAGE_SHIFT) + hva.get() % PAGE_SIZE)
}

/// The numbers of the pages of `range`.
pub(crate) fn whole_pages(range: &Range<Hva>) -> Result<Range<u64>, Error> {
    let is_whole = range.start < range.end
        && [range.start, range.end].iter().all(|hva| hva.get() % PAGE_SIZE == 0);
    if is_whole { Ok(page(range.start)..page(range.end)) } else { Err(Error::Invalid) }
}
