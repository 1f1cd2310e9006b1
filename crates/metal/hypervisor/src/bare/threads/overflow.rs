//! The overflow of a stack on purpose, for tests: the program is to say what has happened.

use core::hint::black_box;
use core::sync::atomic::{AtomicBool, Ordering};

static IDLE: AtomicBool = AtomicBool::new(false);

/// Overflows the stack of this thread.
pub(crate) fn overflow() {
    black_box(deeper(black_box(0)));
}

/// Has the next processor that idles overflow its stack.
pub(crate) fn overflow_idle() {
    IDLE.store(true, Ordering::Relaxed);
}

/// Overflows the stack of an idle processor, if it is to.
pub(super) fn look() {
    if IDLE.load(Ordering::Relaxed) {
        overflow();
    }
}

#[inline(never)]
fn deeper(depth: u64) -> u64 {
    let frame = black_box([depth; 64]);
    if depth == u64::MAX { 0 } else { deeper(depth + 1) + black_box(frame)[0] }
}
