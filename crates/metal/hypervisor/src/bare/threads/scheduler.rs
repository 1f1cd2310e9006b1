//! Which thread runs next: the queue of threads that can run, and the threads that sleep.

use core::num::NonZeroU64;
use core::sync::atomic::{AtomicU32, Ordering};

use super::local::{Local, slice};
use super::queue::Queue;
use super::thread::Thread;
use crate::bare::processor::spin::SpinLock;
use crate::bare::processor::{cpu, kick, timer};

pub(crate) struct Scheduler {
    ready: Queue,
    pub(crate) asleep: Queue,
    /// No sleeper wakes by itself before that, in ticks.
    pub(crate) next_wake: u64,
    /// A bit for each processor that waits for a thread.
    pub(crate) idle: u128,
    /// The last number.
    numbers: u64,
    /// How many processors take threads from it.
    processors: NonZeroU64,
    /// The longest that a thread has waited on the queue, in ticks, divided by the threads that could run
    /// ([`Thread::rivals`]).
    longest_wait: u64,
}

// SAFETY: threads are reached through the scheduler alone, under its lock, or by themselves.
unsafe impl Send for Scheduler {}

pub(crate) static SCHEDULER: SpinLock<Scheduler> = SpinLock::new(Scheduler {
    ready: Queue::new(),
    asleep: Queue::new(),
    next_wake: u64::MAX,
    idle: 0,
    numbers: 0,
    processors: NonZeroU64::MIN,
    longest_wait: 0,
});

/// Threads that sleep, or are about to.
pub(crate) static SLEEPERS: AtomicU32 = AtomicU32::new(0);

impl Scheduler {
    /// This processor takes threads; the first one does from the beginning.
    pub(crate) fn add_processor(&mut self) {
        if cpu::number() != 0 {
            self.processors = self.processors.saturating_add(1);
        }
    }

    /// A number that no thread has had.
    pub(crate) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Puts a thread at the end of the queue.
    pub(crate) fn queue(&mut self, thread: *mut Thread, now: u64) {
        // SAFETY: the thread is on no queue, and its registers are saved, or will be before the lock is given up.
        unsafe {
            self.ready.push(thread);
            (*thread).ready_since = now;
            // Those of the queue, and one that each processor is at.
            (*thread).rivals = self.processors.saturating_add(self.ready.count());
        }
    }

    /// Takes the first thread of the queue.
    pub(crate) fn take(&mut self, now: u64) -> Option<*mut Thread> {
        let thread = self.ready.pop()?;
        // SAFETY: the thread is there, and no other processor's now.
        let waited = unsafe { now.wrapping_sub((*thread).ready_since) / (*thread).rivals };
        if waited > self.longest_wait {
            self.longest_wait = waited;
        }
        Some(thread)
    }

    /// Whether another thread could run.
    pub(crate) fn has_ready(&self) -> bool {
        self.ready.count() != 0
    }

    /// Puts a thread that has come to be able to run on the queue, and has a processor that idles look.
    pub(crate) fn make_ready(&mut self, thread: *mut Thread, now: u64) {
        // SAFETY: no other processor's: it is on no queue.
        unsafe { ((*thread).word, (*thread).deadline) = (0, u64::MAX) };
        self.queue(thread, now);
        if self.idle != 0 {
            let idle = self.idle.trailing_zeros() as usize;
            self.idle &= !(1 << idle);
            if idle != cpu::number() {
                kick(idle);
            }
        }
    }

    /// Takes the thread that a processor that has none is to go on with.
    pub(crate) fn next(&mut self, here: &Local, now: u64) -> *mut Thread {
        self.take(now).unwrap_or(here.idle.load(Ordering::Relaxed))
    }

    /// Puts a thread that has said what it sleeps for, and until when, to sleep.
    pub(crate) fn put_to_sleep(&mut self, thread: *mut Thread) {
        // SAFETY: the thread is the one that asks.
        self.next_wake = self.next_wake.min(unsafe { (*thread).deadline });
        self.asleep.push(thread);
    }

    /// Wakes those whose time has come.
    pub(crate) fn wake_due(&mut self, now: u64) {
        if now < self.next_wake {
            return;
        }
        while let Some(thread) = self.asleep.take(|thread| thread.deadline <= now) {
            SLEEPERS.fetch_sub(1, Ordering::Relaxed);
            self.make_ready(thread, now);
        }
        let next = self.asleep.iter().map(|thread| thread.deadline).min();
        self.next_wake = next.unwrap_or(u64::MAX);
    }
}

/// The longest that a thread which could run has waited for a processor, in hundredths of what it may: a slice for each
/// of the threads that could run, divided by the processors.
pub(crate) fn longest_wait() -> u64 {
    let (longest, processors) = {
        let scheduler = SCHEDULER.lock();
        (scheduler.longest_wait, scheduler.processors.get())
    };
    (longest * processors * 100).div_ceil(slice(timer::frequency()))
}
