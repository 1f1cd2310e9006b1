//! What tests and examples look into tables with, on the machine of [`mayfly_platform::testing`].

use mayfly_platform::address::{Gfn, PAGE_SHIFT, Pfn};
use mayfly_platform::frames::WORDS;

pub use mayfly_platform::testing::{Arena, Process};

use crate::{Entry, Format, Leaf, Level, State};

/// What the tables of `frames` from `top` on map `gfn` to, as hardware walks them, which knows nothing of sections: the
/// page, and how large the leaf is that it lies in. An absent entry, whatever the rest of it says, ends the walk.
///
/// # Panics
///
/// If a table is in none of the frames.
pub fn walk<F: Format>(frames: &Arena, top: Pfn, gfn: Gfn) -> Option<(Level, Leaf)> {
    if gfn.get() >> (F::IPA_BITS - PAGE_SHIFT) != 0 {
        return None;
    }
    let (level, table, index) = last_entry::<F>(frames, top, gfn);
    let entry = Entry::<F>::from_bits(frames.load(table, index));
    if entry.state(level) != State::Leaf {
        return None;
    }
    let leaf = entry.to_leaf(level);
    let pfn = Pfn::new(leaf.pfn.get() + gfn.get() % level.pages());
    Some((level, Leaf { pfn, ..leaf }))
}

/// Where the last entry on the walk to `gfn` is: its level, its table, and its index there.
///
/// # Panics
///
/// As [`walk`].
pub fn last_entry<F: Format>(frames: &Arena, top: Pfn, gfn: Gfn) -> (Level, Pfn, usize) {
    let (mut table, mut level) = (top, F::TOP);
    loop {
        let index = (gfn.get() / level.pages()) as usize;
        let index = index % if level == F::TOP { WORDS << F::ROOT_ORDER } else { WORDS };
        let entry = Entry::<F>::from_bits(frames.load(table, index));
        match (entry.state(level), level.below()) {
            (State::Table(below), Some(next)) => (table, level) = (below, next),
            _ => return (level, table, index),
        }
    }
}
