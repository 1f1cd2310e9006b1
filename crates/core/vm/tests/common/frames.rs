//! Frames for page tables, of one arena for all tests of a binary; so whoever knows a frame can look into it.

use std::sync::LazyLock;
use std::sync::atomic::AtomicU64;

use mayfly_platform::address::{Gfn, Pfn};
use mayfly_platform::testing::Arena;
use mayfly_stage2::{Format, Leaf, Level, testing};

static ARENA: LazyLock<Arena> = LazyLock::new(|| {
    // 256 MiB, of which the host provides what is touched.
    Arena::new(1 << 16)
});

pub(crate) fn arena() -> &'static Arena {
    &ARENA
}

/// What the tables from `top` on map `gfn` to, as hardware walks them: see [`testing::walk`].
pub(crate) fn walk<F: Format>(top: Pfn, gfn: Gfn) -> Option<(Level, Leaf)> {
    testing::walk::<F>(arena(), top, gfn)
}

/// The last entry on the walk to `gfn`.
pub(crate) fn entry<F: Format>(top: Pfn, gfn: Gfn) -> &'static AtomicU64 {
    testing::last_entry::<F>(arena(), top, gfn).1
}
