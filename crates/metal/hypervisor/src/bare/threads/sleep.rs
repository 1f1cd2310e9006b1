//! Sleep for a word.

use core::sync::atomic::{AtomicU32, Ordering, fence};

use mayfly_vm::Kicker;

use super::course::{current, leave, switch_to_next};
use super::interrupts;
use super::kick::LOOK;
use super::local::local;
use super::scheduler::{SCHEDULER, SLEEPERS};
use super::thread::Thread;
use crate::bare::processor::spin::relax;
use crate::bare::processor::{masked, timer};

/// Sleeps while `*word == expected`, until `deadline` (in ticks) at the latest.
pub(crate) fn wait(word: &AtomicU32, expected: u32, deadline: u64) {
    let thread = current();
    if thread == local().idle.load(Ordering::Relaxed) {
        // The idle thread has no other to give way to: its caller looks again.
        interrupts::take();
        relax();
        return;
    }
    // Threads that wake, do little, and sleep again may follow one another for as long as there are such.
    if masked::is_long() {
        interrupts::take();
    }
    // SAFETY: this thread's own.
    let alarm = unsafe { (*thread).alarm.as_ref().map(|(at, _)| *at) };
    sleep(thread, word, expected, deadline.min(alarm.unwrap_or(u64::MAX)));
    if alarm.is_some_and(|at| at <= timer::ticks()) {
        // SAFETY: as above.
        if let Some((_, kicker)) = unsafe { (*thread).alarm.take() } {
            kicker.ask(LOOK);
        }
    }
}

fn sleep(thread: *mut Thread, word: &AtomicU32, expected: u32, deadline: u64) {
    leave();
    SLEEPERS.fetch_add(1, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    let mut scheduler = SCHEDULER.lock();
    let now = timer::ticks();
    if word.load(Ordering::Relaxed) != expected || now >= deadline {
        SLEEPERS.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    scheduler.put_to_sleep(thread, core::ptr::from_ref(word).addr(), deadline, now);
    switch_to_next(local(), scheduler, now);
}

/// Does `work`, in which this thread sleeps until `at` at the latest. Then `kicker` is asked to look, and the thread
/// goes on.
pub(crate) fn with_alarm(at: Option<u64>, kicker: Kicker, work: impl FnOnce()) {
    let thread = current();
    // SAFETY: this thread's own.
    unsafe { (*thread).alarm = at.map(|at| (at, kicker)) };
    work();
    // SAFETY: as above.
    unsafe { (*thread).alarm = None };
}
