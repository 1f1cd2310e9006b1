//! The token that proves that an invalidation is under way ([`sequence`](super)).

use super::ranges::Taken;
use super::words::Words;

/// Proves that an invalidation is under way, of the frames that it has announced: what takes memory away is shown it
/// ([`Stage2::zap`], [`Stage2::replace`], [`Stage2::allow_writes`]).
///
/// By itself it does not end; it is to be ended by [`Stage2::end_invalidation`]. One that ends when it is dropped is an
/// [`Invalidation`](crate::Invalidation), which this can be borrowed from.
///
/// It is made by beginning, and used up by ending, so none ends twice, or without having begun:
///
/// ```compile_fail,E0382
/// use mayfly_stage2::{Format, Stage2};
/// use mayfly_platform::address::Gfn;
///
/// fn twice<F: Format>(stage2: &Stage2<F>) {
///     let announcement = stage2.begin_invalidation(&(Gfn::new(0)..Gfn::new(1))).leave();
///     stage2.end_invalidation(announcement).unwrap();
///     stage2.end_invalidation(announcement).unwrap();
/// }
/// ```
///
/// nor is it there when it has ended, or can be made otherwise, or by a copy:
///
/// ```compile_fail,E0382
/// use mayfly_platform::address::Gfn;
/// use mayfly_stage2::{Format, Slice, Stage2, Tables};
///
/// fn late<F: Format>(stage2: &Stage2<F>) {
///     let page = Gfn::new(0)..Gfn::new(1);
///     let invalidation = stage2.begin_invalidation(&page);
///     drop(invalidation);
///     stage2.zap(&invalidation, page, Tables::Keep, Slice::default());
/// }
/// ```
///
/// ```compile_fail,E0505
/// use mayfly_stage2::{Announcement, Format, Stage2};
/// use mayfly_platform::address::Gfn;
///
/// fn kept<F: Format>(stage2: &Stage2<F>) {
///     let invalidation = stage2.begin_invalidation(&(Gfn::new(0)..Gfn::new(1)));
///     let announcement: &Announcement = &invalidation;
///     drop(invalidation);
///     println!("{announcement:?}");
/// }
/// ```
///
/// ```compile_fail,E0277
/// fn copy(of: &impl Clone) {}
///
/// fn copied(announcement: &mayfly_stage2::Announcement) {
///     copy(announcement);
/// }
/// ```
///
/// [`Stage2::allow_writes`]: crate::Stage2::allow_writes
/// [`Stage2::end_invalidation`]: crate::Stage2::end_invalidation
/// [`Stage2::replace`]: crate::Stage2::replace
/// [`Stage2::zap`]: crate::Stage2::zap
#[derive(Debug)]
#[must_use = "an invalidation that does not end keeps faults waiting for ever"]
pub struct Announcement(pub(crate) Announced);

impl Announcement {
    /// To be ended at once.
    pub(crate) fn into_announced(self) -> Announced {
        self.0
    }

    pub(crate) fn announced(&self) -> &Announced {
        &self.0
    }
}

/// What an invalidation has announced, and takes back when it ends, once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Announced {
    pub(super) words: Words,
    pub(super) ranges: Taken,
    /// The number of the sequence that it was announced in.
    pub(super) sequence: u64,
}
