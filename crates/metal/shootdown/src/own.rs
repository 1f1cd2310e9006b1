//! The program's own tables, which every CPU uses at any time.
//!
//! # The protocol
//!
//! The machine has a *generation*, which each invalidation raises by one: **\[raise\]**, a release, behind the changes. Each CPU
//! has a word, which says for which generation it has flushed last. When a CPU *looks*, it reads the generation, with acquire.
//! If that is not the one in its word, it flushes, and then stores it: **\[flushed\]**, a release. Whoever invalidates
//! interrupts the other CPUs, so that they look, and waits until each word has its generation, or a later one: **\[wait\]**,
//! an acquire. It looks itself meanwhile.
//!
//! **Why nothing is used any more that was changed before.** \[wait\] reads what \[flushed\] has stored, which comes after the
//! flush; and that CPU has read \[raise\], so what it walks behind the flush is what was changed.
//!
//! **Why the wait ends.** A CPU looks when it is interrupted, and while it waits here. It looks behind having taken the
//! interrupt: one that looks first, and then takes it, may have read the generation before \[raise\], and is not interrupted
//! again. It takes as long as a CPU has interrupts
//! masked, at most. Two CPUs that invalidate at once look for each other. A lock that a CPU waits for with interrupts masked is
//! not to be held here.

use mayfly_platform::sync::{AtomicU64, CacheLine, Ordering};

/// The generation of a machine's own tables.
#[derive(Debug)]
pub struct Generation(AtomicU64);

/// For which generation a CPU has flushed last.
#[derive(Debug)]
pub struct Seen(CacheLine<AtomicU64>);

impl Generation {
    /// The first, for which every CPU has flushed.
    #[cfg(not(any(mayfly_loom, mayfly_shuttle)))]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The same, for a model.
    #[cfg(any(mayfly_loom, mayfly_shuttle))]
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Has each CPU flush that `seen` has a word of. The caller's own is among them, or has flushed. Returns when that is so.
    /// `interrupt` has the others look soon. `meanwhile` is called again and again, and [looks](Seen::look) for the caller's
    /// own CPU.
    pub fn invalidate<'a>(
        &self,
        seen: impl Iterator<Item = &'a Seen>,
        interrupt: impl FnOnce(),
        meanwhile: impl Fn(),
    ) {
        // [raise]
        let raised = self.0.fetch_add(1, Ordering::AcqRel) + 1;
        interrupt();
        for Seen(CacheLine(word)) in seen {
            // [wait]
            while word.load(Ordering::Acquire) < raised {
                meanwhile();
            }
        }
    }
}

impl Default for Generation {
    fn default() -> Self {
        Self::new()
    }
}

impl Seen {
    /// That of a CPU which has flushed for the first.
    #[cfg(not(any(mayfly_loom, mayfly_shuttle)))]
    pub const fn new() -> Self {
        Self(CacheLine(AtomicU64::new(0)))
    }

    /// The same, for a model.
    #[cfg(any(mayfly_loom, mayfly_shuttle))]
    pub fn new() -> Self {
        Self(CacheLine(AtomicU64::new(0)))
    }

    /// For the CPU itself: has it `flush`, if it is to.
    #[inline]
    pub fn look(&self, machine: &Generation, flush: impl FnOnce()) {
        let now = machine.0.load(Ordering::Acquire);
        if self.0.load(Ordering::Relaxed) != now {
            flush();
            // [flushed]
            self.0.store(now, Ordering::Release);
        }
    }
}

impl Default for Seen {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(any(mayfly_loom, mayfly_shuttle))))]
mod tests {
    extern crate std;

    use std::cell::Cell;

    use super::*;

    #[test]
    fn all_are_waited_for_and_each_flushes_once() {
        let (machine, seen) = (Generation::new(), [const { Seen::new() }; 3]);
        let (flushes, turns, told) = (Cell::new(0), Cell::new(0), Cell::new(0));
        let flush = || flushes.set(flushes.get() + 1);
        let meanwhile = || {
            turns.set(turns.get() + 1);
            // One CPU looks at each turn.
            seen[turns.get() % 3].look(&machine, flush);
        };
        machine.invalidate(seen.iter(), || told.set(told.get() + 1), meanwhile);
        assert_eq!((flushes.get(), turns.get(), told.get()), (3, 3, 1));
        for seen in &seen {
            seen.look(&machine, flush);
        }
        assert_eq!(flushes.get(), 3);
    }
}
