//! Values whose drop is deferred: allocated, handed over, and freed after a grace period.

use std::cell::Cell;
use std::hint::black_box;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use mayfly_srcu::{RcuBox, Srcu};

/// The least that deferring with Mayfly's guarantees takes, written out: callbacks and bytes are counted exactly before a
/// value is handed over, values are handed over without a lock, and a value is freed after a grace period of the domain's.
/// Values are freed as often as Mayfly frees them: past the soft bound, each 128th has as many freed.
#[derive(Debug)]
pub struct ByHand {
    domain: Srcu,
    /// Callbacks in the upper 24 bits, bytes in the lower 40.
    held: AtomicU64,
    arrived: AtomicPtr<Word>,
    /// Whose grace period is over.
    ready: Cell<*mut Word>,
}

/// A value, with what deferring it takes: as much as a callback of Mayfly's has.
#[derive(Debug)]
#[expect(dead_code, reason = "what a callback has, and a word that nobody reads")]
struct Word {
    next: *mut Self,
    rest: [usize; 3],
    /// Frees it: what is deferred may be of any type.
    act: unsafe fn(*mut Self),
    value: u64,
}

/// # Safety
///
/// `word` is made of a box, and given up.
unsafe fn free(word: *mut Word) {
    // SAFETY: as the caller promises.
    drop(unsafe { Box::from_raw(word) });
}

impl ByHand {
    const COUNT: u64 = 1 << 40;
    const HARD: (u64, u64) = (1 << 14, 16 << 20);
    const SOFT: u64 = 1 << 10;
    const SHARE: u64 = 128;

    /// Nothing, to be freed after grace periods of `domain`.
    pub fn new(domain: &Srcu) -> Self {
        Self {
            domain: domain.clone(),
            held: AtomicU64::new(0),
            arrived: AtomicPtr::new(null_mut()),
            ready: Cell::new(null_mut()),
        }
    }

    /// `count` words, deferred one by one.
    ///
    /// # Panics
    ///
    /// At the hard bound, which one thread does not reach.
    #[inline(never)]
    pub fn calls(&self, count: u32) {
        for _ in 0..count {
            let value = black_box(1_u64);
            let word = Word { next: null_mut(), rest: [0; 3], act: free, value };
            let word = Box::into_raw(Box::new(word));
            let held = self.count();
            self.push(word);
            if held > Self::SOFT && held.is_multiple_of(Self::SHARE) {
                self.free(Self::SHARE);
            }
        }
    }

    /// Counts one more. Returns how many there are.
    fn count(&self) -> u64 {
        let bytes = size_of::<Word>() as u64;
        let mut before = self.held.load(Ordering::Relaxed);
        loop {
            let now = before + Self::COUNT + bytes;
            assert!(now / Self::COUNT <= Self::HARD.0 && now % Self::COUNT <= Self::HARD.1);
            match self.held.compare_exchange_weak(before, now, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return now / Self::COUNT,
                Err(other) => before = other,
            }
        }
    }

    fn push(&self, word: *mut Word) {
        let mut first = self.arrived.load(Ordering::Relaxed);
        loop {
            // SAFETY: the word is this one's until it is on the stack.
            unsafe { (*word).next = first };
            let pushed =
                self.arrived.compare_exchange(first, word, Ordering::AcqRel, Ordering::Relaxed);
            match pushed {
                Ok(_) => return,
                Err(other) => first = other,
            }
        }
    }

    /// Frees `most` at most, after a grace period if there is none that is over.
    fn free(&self, most: u64) {
        if self.ready.get().is_null() {
            let arrived = self.arrived.swap(null_mut(), Ordering::AcqRel);
            self.domain.synchronize_expedited();
            self.ready.set(arrived);
        }
        let mut freed = 0;
        while freed < most && !self.ready.get().is_null() {
            let word = self.ready.get();
            // SAFETY: made of a box, off the stack, and no reader has it.
            unsafe {
                self.ready.set((*word).next);
                ((*word).act)(word);
            }
            freed += 1;
        }
        self.held.fetch_sub(freed * (Self::COUNT + size_of::<Word>() as u64), Ordering::Release);
    }
}

impl Drop for ByHand {
    fn drop(&mut self) {
        while self.held.load(Ordering::Relaxed) > 0 {
            self.free(u64::MAX);
        }
    }
}

/// So many that both are past where they begin to free.
const ROUNDS: u32 = 1 << 14;

/// `count` words, deferred one by one in `domain`.
///
/// # Panics
///
/// If there is no memory for them.
#[inline(never)]
pub fn mayfly(domain: &Srcu, count: u32) {
    for _ in 0..count {
        let value = RcuBox::try_new(black_box(1_u64)).expect("a word is to be had");
        domain.call(value.into_callback());
    }
}

/// `count` words, deferred one by one in crossbeam's default collector.
#[inline(never)]
pub fn crossbeam(count: u32) {
    for _ in 0..count {
        let value = Box::new(black_box(1_u64));
        crossbeam_epoch::pin().defer(move || drop(value));
    }
}

/// `count` words, deferred in crossbeam's default collector, 64 of them each time that the thread is pinned.
#[inline(never)]
pub fn crossbeam_in_batches(count: u32) {
    for first in (0..count).step_by(64) {
        let guard = crossbeam_epoch::pin();
        for _ in first..count.min(first + 64) {
            let value = Box::new(black_box(1_u64));
            guard.defer(move || drop(value));
        }
    }
}

/// Defers so many that each more has one freed.
pub fn fill(defer: impl Fn(u32)) {
    defer(ROUNDS);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mayfly_platform::Host;

    use super::*;
    use crate::sections;

    #[test]
    fn by_hand_no_more_is_held_than_twice_the_soft_bound_and_nothing_at_the_end() {
        let domain = sections::domain(Arc::new(Host::new()));
        let by_hand = ByHand::new(&domain);
        let held = || by_hand.held.load(Ordering::Relaxed) / ByHand::COUNT;
        for _ in 0..100 {
            by_hand.calls(1000);
            assert!(held() <= 2 * ByHand::SOFT, "{}", held());
        }
        by_hand.free(u64::MAX);
        by_hand.free(u64::MAX);
        assert_eq!(by_hand.held.load(Ordering::Relaxed), 0);
        by_hand.calls(3);
    }
}
