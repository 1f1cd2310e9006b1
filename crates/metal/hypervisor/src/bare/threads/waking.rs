//! The end of a sleep.

use core::sync::atomic::{AtomicU32, Ordering, fence};

use super::scheduler::{SCHEDULER, SLEEPERS};
use crate::bare::processor::timer;

/// Wakes all threads that sleep for `word`.
pub(crate) fn wake(word: &AtomicU32) {
    fence(Ordering::SeqCst);
    if SLEEPERS.load(Ordering::Relaxed) == 0 {
        return;
    }
    let address = core::ptr::from_ref(word).addr();
    let mut scheduler = SCHEDULER.lock();
    let now = timer::ticks();
    while let Some(thread) = scheduler.asleep.take(|thread| thread.word == address) {
        SLEEPERS.fetch_sub(1, Ordering::Relaxed);
        scheduler.make_ready(thread, now);
    }
}
