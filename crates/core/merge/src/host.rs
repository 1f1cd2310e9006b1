//! What a merger asks of the host whose pages it merges.

use mayfly_platform::address::Pfn;

use crate::Group;

/// What the merger finds of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Looked {
    /// The frame that it is in.
    pub frame: Pfn,
    /// Nobody writes to the frame: others may have it.
    pub shared: bool,
    /// The [sum](crate::Sums) of what it holds.
    pub sum: u64,
}

/// What became of a page that was to share a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merged {
    /// It holds something else, or nothing.
    No,
    /// It had the frame before; nobody writes to it any more.
    Before,
    /// It has the frame now.
    Now,
}

/// The host. It numbers pages as it likes; pages one after the other may be merged by one change.
///
/// Guests and the host itself change pages at any time. So what these say of a page may be old when they return, unless
/// they say otherwise.
///
/// A frame is *stable* from the moment in which [`Host::close`] has returned it until the merger gives it
/// [back](Host::put). Nobody writes to a stable frame.
pub trait Host {
    /// What there is of `page`, if it has a frame.
    fn look(&self, page: u64) -> Option<Looked>;

    /// Whether `page` shares a stable frame, where the host knows that without a look at what it holds.
    fn is_merged(&self, _page: u64) -> bool {
        false
    }

    /// The frame that `page` is in, if there is one.
    fn frame(&self, page: u64) -> Option<Pfn>;

    /// Whether `page` holds what a stable frame does.
    fn holds(&self, page: u64, frame: Pfn) -> bool;

    /// Whether two pages hold the same.
    fn equal(&self, page: u64, other: u64) -> bool;

    /// How many references there are to a frame: one of each page that has it, and one of the merger.
    fn references(&self, frame: Pfn) -> u64;

    /// The frame of zeroes, if `sum` is that of pages of zeroes, and these share a frame of their own kind.
    fn zero_frame(&self, _sum: u64) -> Option<Pfn> {
        None
    }

    /// Whether a frame is that of zeroes.
    fn is_zero_frame(&self, _frame: Pfn) -> bool {
        false
    }

    /// How many pages are merged with the frame of zeroes.
    fn zero_pages(&self) -> u64 {
        0
    }

    /// Has nobody write to `page` any more, if it is in `frame` and holds what has this sum when nobody does. Returns the
    /// stable frame that it is in then, with a reference for the merger. Otherwise the page is as it was.
    fn close(&self, group: Group, page: u64, frame: Pfn, sum: u64) -> Option<Pfn>;

    /// Has the pages from `first` on share the stable frames `with`, each where its contents are equal while nobody can
    /// write to it ([`share`](crate::share) has the steps). Calls `became` with what became of each, in order.
    fn merge(&self, first: u64, with: &[Pfn], became: &mut dyn FnMut(Merged));

    /// Gives up the merger's reference to a stable frame.
    fn put(&self, frame: Pfn);

    /// Calls `then` while no reference to a frame is held for the time of a change.
    fn while_settled(&self, then: &mut dyn FnMut());

    /// Has all TLBs forget what pages were in before they were merged. Called when nothing comes that would do so in
    /// passing.
    fn settle(&self) {}

    /// Called every few steps, so that a host that masks interrupts can look for them.
    fn pause(&self) {}
}
