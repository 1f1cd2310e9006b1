//! Waiting for a frozen entry.
//!
//! Protocol: an entry is `FROZEN` or `AWAITED` while its holder changes it. A waiter loads its word here (*seen*),
//! turns `FROZEN` into `AWAITED`, or finds it `AWAITED`, and sleeps while the word is what it was. The holder thaws the
//! entry by one swap, which puts the new entry in its place. If the swap returns `AWAITED`, the holder adds one to the
//! word and wakes the waiters.
//!
//! If the swap comes before the waiter's mark, the waiter no longer finds the entry frozen. If the swap comes after,
//! the word changes after *seen* was loaded: the sleep ends or does not begin. An entry that is thawed and frozen again
//! has a mark of its own. A waiter that finds `AWAITED` after it loaded *seen* finds the mark of a freeze whose word is
//! still to change: had *seen* missed the change of an earlier freeze, that change would end the sleep.
//!
//! So waiting writes the entry itself and one word that only waiters use. A CPU that meets no frozen entry neither
//! writes nor reads anything here.

use mayfly_platform::sync::{AtomicU32, Ordering, spin_loop};
use mayfly_platform::{Mmu, Op};

use crate::cell::Cell;
use crate::{Entry, Format};

/// Looks before a waiter sleeps: the holder of an entry is done in less time than a sleep takes, unless it waits for
/// TLBs.
const LOOKS: u32 = if cfg!(any(mayfly_loom, mayfly_shuttle)) { 0 } else { 200 };

/// Words that waiters share. Two entries that share one cost a needless look; and words may share a line, since only
/// waiters and the holders that wake them use it.
const WORDS: usize = if cfg!(any(mayfly_loom, mayfly_shuttle)) { 1 } else { 16 };

pub(crate) struct Parking {
    words: [AtomicU32; WORDS],
}

impl Parking {
    pub(crate) fn new() -> Self {
        Self { words: [(); WORDS].map(|()| AtomicU32::new(0)) }
    }

    /// Returns when the entry in `cell` is no longer frozen by the holder that had frozen it.
    #[cold]
    pub(crate) fn wait<F: Format>(&self, cell: Cell<'_, F>, mmu: &dyn Mmu) {
        mmu.charge(Op::FrozenWait);
        for _ in 0..LOOKS {
            if !is_frozen(cell.load()) {
                return;
            }
            spin_loop();
        }
        let word = self.word(cell);
        loop {
            let seen = word.load(Ordering::Acquire);
            let entry = cell.load();
            if !is_frozen(entry) {
                return;
            }
            if entry == Entry::AWAITED || cell.replace(Entry::FROZEN, Entry::AWAITED) {
                mmu.wait(word, seen);
            }
        }
    }

    /// Puts `entry` in the place of the frozen one in `cell`, which the caller has frozen.
    #[expect(clippy::inline_always, reason = "calls were a third of what a fault comes to")]
    #[inline(always)]
    pub(crate) fn thaw<F: Format>(&self, cell: Cell<'_, F>, entry: Entry<F>, mmu: &dyn Mmu) {
        let frozen = cell.swap(entry);
        debug_assert!(is_frozen(frozen), "only its holder thaws an entry");
        if frozen == Entry::AWAITED {
            self.wake(cell, mmu);
        }
    }

    #[cold]
    #[inline(never)]
    fn wake<F: Format>(&self, cell: Cell<'_, F>, mmu: &dyn Mmu) {
        let word = self.word(cell);
        word.fetch_add(1, Ordering::Release);
        mmu.wake(word);
    }

    fn word<F: Format>(&self, cell: Cell<'_, F>) -> &AtomicU32 {
        &self.words[cell.address() / size_of::<u64>() % WORDS]
    }
}

fn is_frozen<F: Format>(entry: Entry<F>) -> bool {
    entry == Entry::FROZEN || entry == Entry::AWAITED
}
