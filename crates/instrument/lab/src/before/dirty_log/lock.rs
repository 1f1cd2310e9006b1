//! `mmu_lock`, with a clock by which waits for it are measured.
//!
//! The clock runs while a thread that has the lock for write has a processor, too. A thread that waits has waited for as
//! long as the clock went on meanwhile. So a wait does not count for how long the thread that has the lock was kept from
//! its processor by others, on a host with fewer processors than threads.

use std::cell::Cell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mayfly_platform::Platform;
use rustix::thread::{Pid, gettid};

use crate::before::tdp_mmu::{FairLock, Held, Waiting};
use crate::dirty_log::stall::waited;
use crate::work::{cpu_here, cpu_of};

pub(super) struct MmuLock {
    lock: FairLock,
    clock: Mutex<Clock>,
}

#[derive(Default)]
struct Clock {
    /// CPU time of those that had it for write, and have given it up.
    spent: u64,
    /// Who has it for write, and that thread's CPU time when it got it.
    writer: Option<(Pid, u64)>,
}

/// The lock, held for write until dropped.
pub(super) struct Written<'a> {
    mmu_lock: &'a MmuLock,
    held: Held<'a>,
}

thread_local! {
    static THREAD: Cell<Option<Pid>> = const { Cell::new(None) };
}

fn here() -> Pid {
    THREAD.with(|thread| {
        let here = thread.get().unwrap_or_else(gettid);
        thread.set(Some(here));
        here
    })
}

impl MmuLock {
    pub(super) fn new(platform: Arc<dyn Platform>, waiting: Waiting) -> Self {
        Self { lock: FairLock::new(platform, waiting), clock: Mutex::default() }
    }

    /// Together with other readers.
    pub(super) fn read(&self) -> Held<'_> {
        let before = self.now();
        let held = self.lock.read();
        waited(self.now() - before);
        held
    }

    /// Alone.
    pub(super) fn write(&self) -> Written<'_> {
        let before = self.now();
        let held = self.lock.write();
        self.begin(before);
        Written { mmu_lock: self, held }
    }

    fn begin(&self, before: u64) {
        let mut clock = self.clock();
        waited(clock.spent.saturating_sub(before));
        clock.writer = Some((here(), cpu_here()));
    }

    fn end(&self) {
        let mut clock = self.clock();
        if let Some((_, since)) = clock.writer.take() {
            clock.spent += cpu_here().saturating_sub(since);
        }
    }

    fn now(&self) -> u64 {
        let clock = self.clock();
        let running =
            |(thread, since): (Pid, u64)| cpu_of(thread).unwrap_or(0).saturating_sub(since);
        clock.spent + clock.writer.map_or(0, running)
    }

    fn clock(&self) -> MutexGuard<'_, Clock> {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Written<'_> {
    /// Gives it up and takes it again, if somebody waits for it; before that, does `before`. Returns whether anybody did.
    pub(super) fn yield_to_waiters(&mut self, before: impl FnOnce()) -> bool {
        let is_contended = self.held.is_contended();
        if is_contended {
            before();
            self.mmu_lock.end();
            self.held.yield_to_waiters();
            // What the caller waits for is no vCPU's stall.
            let now = self.mmu_lock.now();
            self.mmu_lock.begin(now);
        }
        is_contended
    }
}

impl Drop for Written<'_> {
    fn drop(&mut self) {
        self.mmu_lock.end();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread::{scope, sleep, yield_now};
    use std::time::Duration;

    use mayfly_platform::Host;

    use super::*;
    use crate::dirty_log::stall::Begun;

    #[test]
    fn who_waits_has_waited_for_as_long_as_the_writer_had_its_processor() {
        let lock = MmuLock::new(Arc::new(Host::new()), Waiting::Asleep);
        let holds = AtomicBool::new(false);
        let stalls = scope(|scope| {
            let held = lock.write();
            let waiters = [true, false].map(|writes| {
                let (lock, holds) = (&lock, &holds);
                scope.spawn(move || {
                    while !holds.load(Ordering::Acquire) {
                        yield_now();
                    }
                    let begun = Begun::now();
                    if writes {
                        drop(lock.write());
                    } else {
                        drop(lock.read());
                    }
                    begun.elapsed()
                })
            });
            holds.store(true, Ordering::Release);
            while !lock.lock.is_contended() {
                yield_now();
            }
            // Off the processor: no vCPU would have to wait that long.
            sleep(Duration::from_millis(200));
            let end = cpu_here() + 3_000_000;
            while cpu_here() < end {}
            drop(held);
            waiters.map(|waiter| waiter.join().unwrap())
        });
        for stall in stalls {
            assert!((2_000_000..100_000_000).contains(&stall), "{stall}");
        }
    }
}
