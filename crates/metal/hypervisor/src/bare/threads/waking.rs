//! The end of a sleep.

use core::sync::atomic::{AtomicU32, Ordering, fence};

use super::local::local;
use super::scheduler::{AT_ONCE, SCHEDULER, SLEEPERS};
use crate::bare::processor::timer;

/// Wakes all threads that sleep for `word`: some of them now, and if there are more, those when this processor looks for
/// interrupts the next times.
pub(crate) fn wake(word: &AtomicU32) {
    fence(Ordering::SeqCst);
    if SLEEPERS.load(Ordering::Relaxed) == 0 {
        return;
    }
    let address = core::ptr::from_ref(word).addr();
    let mut scheduler = SCHEDULER.lock();
    let now = timer::ticks();
    let is_done = (0..AT_ONCE).any(|_| !scheduler.wake_one(address, now));
    if is_done || !scheduler.asleep.has_one_for(address) {
        return;
    }
    if scheduler.wake_later(address) {
        local().set_alarm(now);
    } else {
        while scheduler.wake_one(address, now) {}
    }
}
