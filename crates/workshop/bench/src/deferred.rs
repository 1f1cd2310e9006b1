//! Values whose drop is deferred: allocated, handed over, and freed after a grace period.

use std::hint::black_box;

use mayfly_srcu::{RcuBox, Srcu};

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
