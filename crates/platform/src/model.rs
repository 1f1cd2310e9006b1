//! The platform under a model checker: sleeping and waking through the checker's own lock and condition variable, so
//! that a lost wake-up is a deadlock, which the checker reports.

#[cfg(mayfly_shuttle)]
use alloc::sync::Arc;

#[cfg(mayfly_loom)]
use loom::{
    sync::{Condvar, Mutex},
    thread::yield_now,
};
#[cfg(mayfly_shuttle)]
use shuttle::{
    sync::{Condvar, Mutex},
    thread::yield_now,
};

use crate::sync::{AtomicU32, Ordering};
use crate::time::Instant;
use crate::{Platform, ReaderBarrier};

/// A platform inside a loom model or a shuttle test. Time stands still, and a wait with a deadline may end at once, as
/// a real one may.
pub struct Model {
    sleepers: Mutex<()>,
    woken: Condvar,
}

impl Model {
    /// A platform for one execution of a model.
    pub fn new() -> Self {
        Self { sleepers: Mutex::new(()), woken: Condvar::new() }
    }
}

impl Default for Model {
    fn default() -> Self {
        Self::new()
    }
}

impl Platform for Model {
    fn wait(&self, word: &AtomicU32, expected: u32) {
        let sleeping = self.sleepers.lock().unwrap();
        if word.load(Ordering::Relaxed) == expected {
            drop(self.woken.wait(sleeping).unwrap());
        }
    }

    fn wait_until(&self, word: &AtomicU32, expected: u32, deadline: Instant) {
        if deadline == Instant::NEVER {
            self.wait(word, expected);
        } else {
            yield_now();
        }
    }

    fn wake(&self, _word: &AtomicU32) {
        let _sleeping = self.sleepers.lock().unwrap();
        self.woken.notify_all();
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(0)
    }

    fn reader_barrier(&self) -> ReaderBarrier {
        // The checkers know no barrier that one thread executes for all.
        ReaderBarrier::Fenced
    }

    fn heavy_barrier(&self) {
        unreachable!("readers are fenced under a model checker");
    }
}

/// Runs a shuttle test under so many `random` schedules, and so many of those that aim at four preemptions (`pct`:
/// Burckhardt and others, "A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs", 2010).
#[cfg(mayfly_shuttle)]
pub fn check_schedules(random: usize, pct: usize, model: impl Fn() + Send + Sync + 'static) {
    const DEPTH: usize = 4;
    let model = Arc::new(model);
    let same = Arc::clone(&model);
    shuttle::check_random(move || same(), random);
    shuttle::check_pct(move || model(), pct, DEPTH);
}
