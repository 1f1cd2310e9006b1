//! The page merger: makes pages that hold the same share one frame, as Linux's KSM does (`mm/ksm.c`; tunables and
//! statistics have the names of `/sys/kernel/mm/ksm`).
//!
//! [`Merger::scan_batch`] looks at the next [`pages_to_scan`](Tunables::pages_to_scan) pages of the ranges that were
//! [registered](Merger::register), as `MADV_MERGEABLE` does; a [`MergerThread`] does so again and again. Of each page:
//!
//! 1. Its contents are those of a frame in the *stable set*, to whose frames no guest writes: it is merged with that.
//! 2. Its checksum is not that of the last look: it changes, and the merger leaves it alone until it stays the same
//!    (*volatile*).
//! 3. It is all zeroes, and [`use_zero_pages`](Tunables::use_zero_pages) is set: it is merged with the frame of zeroes.
//! 4. Its contents are those of a page in the *unstable set*, of pages that have stayed the same since the last look,
//!    but may be written at any moment: the other page's frame is closed to writes, goes to the stable set, and the
//!    page is merged with it.
//! 5. Otherwise it goes to the unstable set itself, which is forgotten when all ranges have been gone through.
//!
//! Both sets find contents by checksum, and compare word by word. The merger merges only pages that it compared while no
//! guest could write to either. (Linux keeps both sets in trees that are ordered by contents. The unstable tree can go out
//! of order when its pages are written; what is lost then is found in the next pass, as it is here.)
//!
//! Pages one after the other (of one range as it was registered) that are to be merged are merged together, up to
//! [`pages_to_merge`](Tunables::pages_to_merge) of them: one start and end for all, and TLBs are asked once to give up
//! writing. Linux takes each page by itself, with two starts and ends; so it is here, unless more is set.
//!
//! The invalidations that are owed for the old frames are paid in passing, or for many pages together; and when a pass has
//! merged nothing, or nothing is to be merged any more.
//!
//! The stable set has a reference to each of its frames; those that no page shares any more are given up when a pass is
//! over, or pages are unmerged. Statistics count what shares a frame at that moment, and not at the scanner's last
//! look.

mod contents;
mod control;
mod counts;
mod item;
mod scan;
mod stable;
mod thread;
mod tunables;

pub use control::Merger;
pub use counts::Statistics;
pub use thread::MergerThread;
pub use tunables::{Run, Tunables};
