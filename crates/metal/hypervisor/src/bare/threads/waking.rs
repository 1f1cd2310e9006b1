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
    while let Some(sleeper) = scheduler.asleep.take_for(address) {
        scheduler.end_sleep(sleeper, now);
    }
}
