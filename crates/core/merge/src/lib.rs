//! A page merger: pages that hold the same come to share one frame, as Linux's KSM has them do (`mm/ksm.c`; limits and
//! statistics have the names of `/sys/kernel/mm/ksm`).
//!
//! [`Merger`] says which pages are to be merged, and the [`Host`] merges them. The merger has no hardware, no lock, no clock
//! and no thread: the embedder has a lock around it, and calls [`Merger::scan`] again and again, each time for as many pages
//! as it likes. [`Pace`] says how long to rest in between.
//!
//! Pages are [registered](Merger::register) in *groups*, and never merged across these. Who can write to a page, and measure
//! how long that takes, finds out whether another page of its group holds the same: so a group is of guests that may know this
//! of each other.
//!
//! Of each page that is looked at:
//!
//! 1. Its contents are those of a frame in the *stable set* of its group, to whose frames nobody writes: it is merged with
//!    that.
//! 2. Its sum is not that of the last look: it changes, and the merger leaves it alone until it stays the same (*volatile*).
//! 3. It is all zeroes, and the host has a frame of zeroes for such pages: it is merged with that.
//! 4. Its contents are those of a page in the *unstable set*, of pages that have stayed the same since the last look, but may
//!    be written at any moment: the other page is closed to writes, its frame goes to the stable set, and the page is merged
//!    with it.
//! 5. Otherwise it goes to the unstable set itself, which is forgotten when all pages have been gone through.
//!
//! A page for which it came to 2 or 5 again and again is [looked at](Limits::most_passes) in fewer passes.
//!
//! Both sets find contents by their [sum](Sums), by a key that no guest knows; and few of the same sum are compared. So no guest
//! makes a look long, by pages of one sum or of one chain of an index. The merger merges only pages that were compared while
//! nobody could write to either ([`share`]). (Linux keeps both sets in trees that are ordered by contents. The unstable tree
//! can go out of order when its pages are written; what is lost then is found in the next pass, as it is here.)
//!
//! Pages one after the other (of one range as it was registered) that are to be merged are merged together, up to
//! [`pages_to_merge`](Limits::pages_to_merge) of them. Linux takes each page by itself.
//!
//! The stable set has a reference to each of its frames; those that no page shares any more are given up when a pass is over.
//! Statistics count what shares a frame at that moment, and not at the scanner's last look.
//!
//! It takes four bytes of memory for each page that is registered, and some 30 for each that has stayed the same and has no
//! equal ([`pages_a_find`](Limits::pages_a_find) bounds these). Where there is no memory for them, pages wait for an equal in a
//! later pass.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod contents;
mod host;
mod index;
mod items;
mod merger;
mod pace;
mod pieces;
mod statistics;
mod steps;

pub use contents::Sums;
pub use host::{Host, Looked, Merged};
pub use merger::Merger;
pub use pace::Pace;
pub use statistics::Statistics;
pub use steps::{Steps, share};

/// Who may share frames with each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Group(pub u32);

/// Bounds of what is merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Pages that may share a frame; the next one of equal contents begins another. At least 2.
    pub max_page_sharing: u64,
    /// Pages that are merged together at most, if they are one after the other.
    pub pages_to_merge: u64,
    /// Of so many pages that are registered, one may be in the sets by which pages are found by their contents; the others
    /// wait for a pass in which there is room. So memory is bounded. Where pages waited in vain, the next pass that looks at all pages
    /// has room for these first. At least 1.
    pub pages_a_find: u64,
    /// A page that had no equal in three looks, one after the other, is looked at in every second pass, and later in one of four and
    /// of eight passes; but in one of so many at least. A power of two: 1 for a look in each pass. (As Linux does from 6.7 on, by
    /// `smart_scan`.)
    pub most_passes: u64,
    /// So many pages count as one look that take less, because nothing is summed: those without a frame, those that the host
    /// [knows](Host::is_merged) to be merged, and those that are not looked at in this pass. At least 1.
    pub pages_a_look: u64,
}
