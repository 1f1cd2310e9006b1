//! What tests and examples look into tables with, on the machine of [`mayfly_platform::testing`].

use mayfly_platform::address::{Gfn, PAGE_SHIFT, Pfn};
use mayfly_platform::frames::WORDS;
use mayfly_platform::sync::{AtomicU64, Ordering};

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
    let (level, word) = last_entry::<F>(frames, top, gfn);
    let entry = Entry::<F>::from_bits(word.load(Ordering::Acquire));
    if entry.state(level) != State::Leaf {
        return None;
    }
    let leaf = entry.to_leaf(level);
    let pfn = Pfn::new(leaf.pfn.get() + gfn.get() % level.pages());
    Some((level, Leaf { pfn, ..leaf }))
}

/// The last entry on the walk to `gfn`, and its level.
///
/// # Panics
///
/// As [`walk`].
pub fn last_entry<F: Format>(frames: &Arena, top: Pfn, gfn: Gfn) -> (Level, &AtomicU64) {
    let (mut table, mut level) = (top, F::TOP);
    loop {
        let index = (gfn.get() / level.pages()) as usize;
        let index = index % if level == F::TOP { WORDS << F::ROOT_ORDER } else { WORDS };
        let word = frames.word(table, index);
        // Acquire: a table's entries are read after the entry that it was found by.
        let entry = Entry::<F>::from_bits(word.load(Ordering::Acquire));
        match (entry.state(level), level.below()) {
            (State::Table(below), Some(next)) => (table, level) = (below, next),
            _ => return (level, word),
        }
    }
}
