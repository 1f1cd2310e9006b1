//! Stage-2 tables, built entry by entry.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use mayfly_machine::Arena;
use mayfly_platform::address::{Gfn, Hpa, Pfn};
use mayfly_stage2::{Entry, Format, Leaf, Level, State};

/// A table in format `F`, whose frames stay with the arena.
pub(crate) struct Table<'a, F> {
    arena: &'a Arena,
    pub(crate) top: Pfn,
    format: PhantomData<F>,
}

impl<'a, F: Format> Table<'a, F> {
    pub(crate) fn new(arena: &'a Arena) -> Self {
        Self { arena, top: arena.allocate(F::ROOT_ORDER).unwrap(), format: PhantomData }
    }

    /// Maps, in place of whatever is there.
    pub(crate) fn map(&self, gfn: Gfn, level: Level, leaf: Leaf) {
        self.entry(gfn, level).store(Entry::<F>::leaf(level, &leaf).bits(), Ordering::Release);
    }

    /// Has the entry of `level` lead to a table in `below`.
    pub(crate) fn lead(&self, gfn: Gfn, level: Level, below: Pfn) {
        self.entry(gfn, level).store(Entry::<F>::table(below).bits(), Ordering::Release);
    }

    pub(crate) fn unmap(&self, gfn: Gfn, level: Level) {
        self.entry(gfn, level).store(0, Ordering::Release);
    }

    /// The page at `gfn`.
    pub(crate) fn leaf(&self, gfn: Gfn) -> Leaf {
        Entry::<F>::from_bits(self.entry(gfn, Level::PAGE).load(Ordering::Acquire))
            .to_leaf(Level::PAGE)
    }

    /// The entry of `level`, with the tables above it.
    fn entry(&self, gfn: Gfn, level: Level) -> &AtomicU64 {
        let (mut at, mut table, mut index) = (F::TOP, self.top, gfn.get() / F::TOP.pages());
        while at > level {
            let word = self.word(table, index);
            let entry = Entry::<F>::from_bits(word.load(Ordering::Acquire));
            table = if let State::Table(below) = entry.state(at) {
                below
            } else {
                let below = self.arena.allocate(0).unwrap();
                word.store(Entry::<F>::table(below).bits(), Ordering::Release);
                below
            };
            at = at.below().unwrap();
            index = gfn.get() / at.pages() % 512;
        }
        self.word(table, index)
    }

    fn word(&self, table: Pfn, index: u64) -> &AtomicU64 {
        self.arena.word(Hpa::new((table.get() << 12) + 8 * index))
    }
}
