//! Maps whatever frame a test names. Frames of these tests are numbers: nothing accesses what a guest is given.

// Each test binary uses a part of it.
#![allow(dead_code)]

use std::ops::Range;

use mayfly_platform::address::{Gfn, Pfn};
use mayfly_srcu::Section;
use mayfly_stage2::{
    Announcement, Error, Format, Grant, Leaf, Level, Mapped, Owed, Replacement, Root, Seen, Slice,
    Stage2,
};

/// Maps frames that no host has been asked for.
pub(crate) trait MapsAny<F: Format> {
    /// A grant of the block of `level` that `gfn` lies in, in the frames from `leaf`'s on.
    fn grant_any<'a>(
        &'a self,
        gfn: Gfn,
        level: Level,
        leaf: &Leaf,
        seen: Seen,
        section: &'a impl Section,
    ) -> Grant<'a, F>;

    fn map(
        &self,
        gfn: Gfn,
        level: Level,
        leaf: &Leaf,
        seen: Seen,
        section: &impl Section,
    ) -> Result<Mapped, Error> {
        self.grant_any(gfn, level, leaf, seen, section).map()
    }

    fn map_missing_page(
        &self,
        gfn: Gfn,
        leaf: &Leaf,
        seen: Seen,
        section: &impl Section,
    ) -> Option<Mapped> {
        self.grant_any(gfn, Level::PAGE, leaf, seen, section).map_missing_page()
    }

    fn map_any_run(
        &self,
        gfns: Range<Gfn>,
        level: Level,
        leaf: &Leaf,
        seen: Seen,
        section: &impl Section,
    ) -> Result<Mapped, Error>;
}

impl<F: Format> MapsAny<F> for Root<F> {
    fn grant_any<'a>(
        &'a self,
        gfn: Gfn,
        level: Level,
        leaf: &Leaf,
        seen: Seen,
        section: &'a impl Section,
    ) -> Grant<'a, F> {
        // SAFETY: no guest of these tests accesses memory.
        unsafe { self.grant(gfn, level, *leaf, seen, section) }
    }

    fn map_any_run(
        &self,
        gfns: Range<Gfn>,
        level: Level,
        leaf: &Leaf,
        seen: Seen,
        section: &impl Section,
    ) -> Result<Mapped, Error> {
        // SAFETY: as above.
        unsafe { self.map_run(gfns, level, leaf, seen, section) }
    }
}

/// Changes the frames of pages to any others.
pub(crate) trait ReplacesAny<F: Format> {
    fn replace_any(
        &self,
        announcement: &Announcement,
        gfns: Range<Gfn>,
        slice: Slice,
        with: impl Fn(Gfn) -> Option<Replacement>,
        prepare: impl FnMut(&Leaf),
    );

    fn replace_any_owing(
        &self,
        announcement: &Announcement,
        gfns: Range<Gfn>,
        slice: Slice,
        with: impl Fn(Gfn) -> Option<Replacement>,
        prepare: impl FnMut(&Leaf),
    ) -> Owed;

    fn allow_any_writes(&self, announcement: &Announcement, gfn: Gfn, pfn: Pfn);
}

impl<F: Format> ReplacesAny<F> for Stage2<F> {
    fn replace_any(
        &self,
        announcement: &Announcement,
        gfns: Range<Gfn>,
        slice: Slice,
        with: impl Fn(Gfn) -> Option<Replacement>,
        prepare: impl FnMut(&Leaf),
    ) {
        // SAFETY: no guest of these tests accesses memory.
        unsafe { self.replace(announcement, gfns, slice, with, prepare) };
    }

    fn replace_any_owing(
        &self,
        announcement: &Announcement,
        gfns: Range<Gfn>,
        slice: Slice,
        with: impl Fn(Gfn) -> Option<Replacement>,
        prepare: impl FnMut(&Leaf),
    ) -> Owed {
        // SAFETY: as above.
        unsafe { self.replace_owing(announcement, gfns, slice, with, prepare) }
    }

    fn allow_any_writes(&self, announcement: &Announcement, gfn: Gfn, pfn: Pfn) {
        // SAFETY: as above.
        unsafe { self.allow_writes(announcement, gfn, pfn) };
    }
}
