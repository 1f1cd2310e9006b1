//! Where a root's tables have tables below them: the reclaimer looks at this instead of at all their entries.
//!
//! A root has a few *records*, each of one table: 64 bits that stand for as many groups of the table's entries, and say
//! in which groups there has been a table. A CPU that puts a table in the place of an entry sets the bit before the
//! entry can be found. No other code writes a record, and no bit is cleared. A table gets a record when the first table
//! is put below it. When there is no record left, the table has none, and the reclaimer looks at all its entries. A
//! record is of the frames for which its table stands, so a table that comes back there later has the same record
//! again.
//!
//! The reclaimer reads the records when nothing has a reference to the root any more, which orders what was written
//! before. (These atomics synchronise nothing, so a model checker does not have to see them.)

use core::sync::atomic::{AtomicU64, Ordering};

use mayfly_platform::address::Gfn;
use mayfly_platform::frames::WORDS;

use crate::{Format, Level};

/// Records of a root: they fill a cache line with the number of its frames.
const RECORDS: usize = if cfg!(any(mayfly_loom, mayfly_shuttle)) { 2 } else { 7 };

pub(crate) struct Children([Record; RECORDS]);

struct Record {
    /// Which table it is of ([`name`]); 0 while it is of none.
    table: AtomicU64,
    groups: AtomicU64,
}

impl Children {
    pub(crate) fn new() -> Self {
        Self([(); RECORDS].map(|()| Record { table: AtomicU64::new(0), groups: AtomicU64::new(0) }))
    }

    /// A table is about to be put in the place of the entry of `level` for `gfn`.
    pub(crate) fn note<F: Format>(&self, level: Level, gfn: Gfn) {
        let (name, group) = (name::<F>(level, gfn), 1 << group::<F>(level, gfn));
        for Record { table, groups } in &self.0 {
            // Relaxed: only the CPUs that set bits in a record read it, and the reclaimer.
            let present = match table.load(Ordering::Relaxed) {
                0 => match table.compare_exchange(0, name, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => name,
                    Err(other) => other,
                },
                present => present,
            };
            if present == name {
                if groups.load(Ordering::Relaxed) & group == 0 {
                    groups.fetch_or(group, Ordering::Relaxed);
                }
                return;
            }
        }
    }

    /// The first frame from `gfn` on, of those that the table of `level` stands for, whose entry may lead to a table,
    /// and the end of its group; `None` where no other does.
    pub(crate) fn next<F: Format>(&self, level: Level, gfn: Gfn) -> Option<(Gfn, Gfn)> {
        let marked = self.groups(name::<F>(level, gfn)) >> group::<F>(level, gfn);
        let further = match marked.trailing_zeros() {
            u64::BITS => return None,
            further => u64::from(further),
        };
        let pages = group_pages::<F>(level);
        let group = (gfn.get() & !(pages - 1)) + further * pages;
        Some((gfn.max(Gfn::new(group)), Gfn::new(group + pages)))
    }

    /// The groups of a table where there has been one below it.
    fn groups(&self, name: u64) -> u64 {
        for Record { table, groups } in &self.0 {
            match table.load(Ordering::Relaxed) {
                0 => return 0,
                present if present == name => return groups.load(Ordering::Relaxed),
                _ => {}
            }
        }
        u64::MAX
    }
}

/// Names the table of `level` for `gfn`, by a number that is not 0.
fn name<F: Format>(level: Level, gfn: Gfn) -> u64 {
    let first = if level == F::TOP { 0 } else { level.above().first(gfn).get() };
    // A frame number has no more than 52 bits.
    (u64::from(level.get()) + 1) << 56 | first
}

/// The group of the entry of `level` for `gfn`.
fn group<F: Format>(level: Level, gfn: Gfn) -> u32 {
    let groups = u64::from(u64::BITS);
    (gfn.get() / group_pages::<F>(level) % groups) as u32
}

/// Pages that a group of entries of `level` stands for: a power of two.
fn group_pages<F: Format>(level: Level) -> u64 {
    let entries = if level == F::TOP { WORDS << F::ROOT_ORDER } else { WORDS };
    (entries / u64::BITS as usize).max(1) as u64 * level.pages()
}

#[cfg(all(test, not(any(mayfly_loom, mayfly_shuttle))))]
mod tests {
    use super::*;
    use crate::{Arm, Ept};
    use alloc::vec::Vec;
    use std::vec;

    /// The first frames of the entries that are looked at, of a table that begins at frame `first`.
    fn looked_at<F: Format>(children: &Children, level: Level, first: u64, end: u64) -> Vec<u64> {
        let mut from = Gfn::new(first);
        let mut entries = Vec::new();
        while from.get() < end
            && let Some((next, group_end)) = children.next::<F>(level, from)
        {
            entries.extend((next.get()..group_end.get()).step_by(level.pages() as usize));
            from = group_end;
        }
        entries
    }

    #[test]
    fn what_is_looked_at_of_a_table_is_the_groups_where_tables_were_put_below_it() {
        type F = Arm<40>;
        const GIB: u64 = 1 << 18;
        let children = Children::new();
        children.note::<F>(Level::GIB1, Gfn::new(0));
        children.note::<F>(Level::GIB1, Gfn::new((1 << 28) - 1));
        let groups = (0..16).chain(1008..1024).map(|entry| entry * GIB);
        assert_eq!(looked_at::<F>(&children, Level::GIB1, 0, 1 << 28), groups.collect::<Vec<_>>());
        children.note::<F>(Level::MIB2, Gfn::new(5 * GIB + 511 * 512));
        let last = (504..512).map(|entry| 5 * GIB + entry * 512).collect::<Vec<_>>();
        assert_eq!(looked_at::<F>(&children, Level::MIB2, 5 * GIB, 6 * GIB), last);
        assert_eq!(looked_at::<F>(&children, Level::MIB2, 6 * GIB, 7 * GIB), vec![0; 0]);
    }

    #[test]
    fn a_table_without_a_record_has_all_its_entries_looked_at() {
        let children = Children::new();
        let gib = |number: u64| Gfn::new(number << 18);
        for number in 0..=RECORDS as u64 {
            children.note::<Ept>(Level::MIB2, gib(number));
        }
        let last = RECORDS as u64;
        let entries = |number: u64| {
            looked_at::<Ept>(&children, Level::MIB2, number << 18, (number + 1) << 18).len()
        };
        assert_eq!((entries(0), entries(last - 1), entries(last)), (8, 8, 512));
    }
}
