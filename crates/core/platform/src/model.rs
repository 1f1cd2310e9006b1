//! The platform under a model checker: sleeping and waking through the checker's own lock and condition variable, so
//! that a lost wake-up is a deadlock, which the checker reports.

#[cfg(mayfly_shuttle)]
use alloc::sync::Arc;

#[cfg(mayfly_loom)]
use loom::{
    sync::{Condvar, Mutex},
    thread::{current, yield_now},
};
#[cfg(mayfly_shuttle)]
use shuttle::{
    Config, Runner,
    scheduler::{PctScheduler, RandomScheduler},
    sync::{Condvar, Mutex},
    thread::{current, yield_now},
};

use core::hash::{Hash, Hasher};
use core::num::NonZeroU64;
use std::hash::DefaultHasher;

use crate::sync::{AtomicU32, Ordering};
use crate::time::Instant;
use crate::{Context, Identity, Platform, ReaderBarrier};

/// A platform inside a loom model or a shuttle test. Time stands still but where a thread waits with a deadline: that
/// ends at once, as a real wait may, and then it is as late as that.
///
/// Its barrier is asymmetric, in that readers leave it to the platform which barrier is heavy; but a checker knows no
/// barrier that one thread executes for all, so readers execute a fence for their compiler barrier, which is what the
/// asymmetric barrier amounts to. [`Model::fenced`] is a platform without one.
pub struct Model {
    sleepers: Mutex<()>,
    woken: Condvar,
    barrier: ReaderBarrier,
    /// What the clock shows, in nanoseconds. No checker's word: when time passes is no schedule to be gone through.
    now: core::sync::atomic::AtomicU64,
}

impl Model {
    /// A platform for one execution of a model.
    pub fn new() -> Self {
        Self::with(ReaderBarrier::Asymmetric)
    }

    /// A platform for one execution of a model, whose readers are fenced.
    pub fn fenced() -> Self {
        Self::with(ReaderBarrier::Fenced)
    }

    fn with(barrier: ReaderBarrier) -> Self {
        Self { sleepers: Mutex::new(()), woken: Condvar::new(), barrier, now: 0.into() }
    }
}

impl Default for Model {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: the heavy barrier is the fences that readers execute and the one that comes before it; each model is a world
// of its own, and one execution of a checker builds one.
unsafe impl Platform for Model {
    fn identity(&self) -> Identity {
        Identity::new(0)
    }

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
            self.now.fetch_max(deadline.as_nanos(), Ordering::Relaxed);
        }
    }

    fn wake(&self, _word: &AtomicU32) {
        let _sleeping = self.sleepers.lock().unwrap();
        self.woken.notify_all();
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(self.now.load(Ordering::Relaxed))
    }

    fn reader_barrier(&self) -> ReaderBarrier {
        self.barrier
    }

    fn heavy_barrier(&self) {
        crate::sync::fence(Ordering::SeqCst);
    }

    fn context(&self) -> Option<Context> {
        let mut hasher = DefaultHasher::new();
        current().id().hash(&mut hasher);
        NonZeroU64::new(hasher.finish()).map(Context::new)
    }
}

/// Runs a shuttle test under so many `random` schedules, and so many of those that aim at four preemptions (`pct`:
/// Burckhardt and others, "A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs", 2010).
#[cfg(mayfly_shuttle)]
pub fn check_schedules(random: usize, pct: usize, model: impl Fn() + Send + Sync + 'static) {
    const DEPTH: usize = 4;
    let mut config = Config::new();
    // Beside what is tested a thread's stack has the scheduler on it.
    config.stack_size = 256 << 10;
    let model = Arc::new(model);
    let same = Arc::clone(&model);
    Runner::new(RandomScheduler::new(random), config.clone()).run(move || same());
    Runner::new(PctScheduler::new(DEPTH, pct), config).run(move || model());
}
