//! The page merger: makes pages that hold the same share one frame, as Linux's KSM does (`mm/ksm.c`; tunables and
//! statistics have the names of `/sys/kernel/mm/ksm`).
//!
//! What it does with a page is [`mayfly_merge`]'s. [`Merger::scan_batch`] looks at the next
//! [`pages_to_scan`](Tunables::pages_to_scan) pages of the ranges that were [registered](Merger::register), as
//! `MADV_MERGEABLE` does; a [`MergerThread`] does so again and again. All pages are of one group.
//!
//! Pages one after the other (of one range as it was registered) that are to be merged are merged together, up to
//! [`pages_to_merge`](Tunables::pages_to_merge) of them: one start and end for all, and TLBs are asked once to give up
//! writing. Linux takes each page by itself, with two starts and ends; so it is here, unless more is set.
//!
//! The invalidations that are owed for the old frames are paid in passing, or for many pages together; and when a pass has
//! merged nothing, or nothing is to be merged any more.

mod control;
mod pages;
mod thread;
mod tunables;

pub use control::Merger;
pub use mayfly_merge::Statistics;
pub use thread::MergerThread;
pub use tunables::{Run, Tunables};
