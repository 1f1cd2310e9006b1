//! Frames for page tables, of one arena for all tests of a binary; so whoever knows a frame can look into it.

use std::ops::Range;
use std::sync::LazyLock;

use mayfly_platform::address::{Gfn, Pfn};
use mayfly_platform::frames::{Frames, WORDS};
use mayfly_platform::testing::Arena;
use mayfly_stage2::{Format, Leaf, Level, testing};

const FRAMES: usize = 1 << 16;

static ARENA: LazyLock<Arena> = LazyLock::new(|| {
    // 256 MiB, of which the host provides what is touched.
    Arena::new(FRAMES)
});

pub(crate) fn arena() -> &'static Arena {
    &ARENA
}

/// What the tables from `top` on map `gfn` to, as hardware walks them: see [`testing::walk`].
pub(crate) fn walk<F: Format>(top: Pfn, gfn: Gfn) -> Option<(Level, Leaf)> {
    testing::walk::<F>(arena(), top, gfn)
}

/// Where the last entry on the walk to `gfn` is in this process.
pub(crate) fn entry<F: Format>(top: Pfn, gfn: Gfn) -> usize {
    let (_, table, index) = testing::last_entry::<F>(arena(), top, gfn);
    place().start + (table.get() as usize * WORDS + index) * size_of::<u64>()
}

/// Where the frames are in this process.
pub(crate) fn place() -> Range<usize> {
    let start = arena().linear_map().addr();
    start..start + (FRAMES + 1) * WORDS * size_of::<u64>()
}
