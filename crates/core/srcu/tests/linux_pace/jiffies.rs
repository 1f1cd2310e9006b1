//! A domain that is paced as Linux, with a clock that the test sets.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};

use mayfly_platform::sync::AtomicU32;
use mayfly_platform::time::Instant;
use mayfly_platform::{Identity, Platform, ReaderBarrier};
use mayfly_srcu::{Callback, Config, Pace, Srcu, Worker};

pub(crate) const NANOS_PER_SECOND: u64 = 1_000_000_000;
pub(crate) const HZ: u32 = 250;
/// The jiffy that a test begins in.
pub(crate) const BEGIN: u64 = 1_000;
/// What passes from one reading of the clock to the next, so that polling comes to an end.
pub(crate) const READING: u64 = 1_000;

/// Time that the test sets.
pub(crate) struct Time {
    number: u64,
    pub(crate) now: AtomicU64,
    sleepers: Mutex<usize>,
    changed: Condvar,
}

impl Default for Time {
    fn default() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        Self {
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            now: AtomicU64::default(),
            sleepers: Mutex::default(),
            changed: Condvar::default(),
        }
    }
}

impl Time {
    /// Returns when as many threads as `count` are asleep.
    fn wait_for_sleepers(&self, count: usize) {
        let sleepers = self.sleepers.lock().unwrap();
        drop(self.changed.wait_while(sleepers, |sleepers| *sleepers != count).unwrap());
    }
}

// SAFETY: readers are fenced; each is a world of its own number.
unsafe impl Platform for Time {
    fn identity(&self) -> Identity {
        Identity::new(self.number)
    }

    fn wait(&self, word: &AtomicU32, expected: u32) {
        let mut sleepers = self.sleepers.lock().unwrap();
        *sleepers += 1;
        self.changed.notify_all();
        while word.load(Ordering::Relaxed) == expected {
            sleepers = self.changed.wait(sleepers).unwrap();
        }
        *sleepers -= 1;
    }

    fn wait_until(&self, _: &AtomicU32, _: u32, _: Instant) {
        unreachable!("the worker is turned by hand");
    }

    fn wake(&self, _: &AtomicU32) {
        let _sleepers = self.sleepers.lock().unwrap();
        self.changed.notify_all();
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(self.now.fetch_add(READING, Ordering::Relaxed))
    }

    fn reader_barrier(&self) -> ReaderBarrier {
        ReaderBarrier::Fenced
    }

    fn heavy_barrier(&self) {
        unreachable!("readers are fenced");
    }
}

/// A domain with its time and its worker.
pub(crate) struct Linux {
    pub(crate) time: Arc<Time>,
    pub(crate) worker: Turned,
    pub(crate) domain: Srcu,
    pub(crate) jiffy: u64,
}

/// A worker that lets go of its domains when the test ends.
pub(crate) struct Turned(pub(crate) Arc<Worker>);

impl Drop for Turned {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl Linux {
    /// A domain at `hz`, idle for long, in the middle of jiffy [`BEGIN`].
    pub(crate) fn at(hz: u32) -> Self {
        let time = Arc::new(Time::default());
        let platform: Arc<dyn Platform> = time.clone();
        let worker = Arc::new(Worker::new(Arc::clone(&platform)));
        let pace = Pace::Linux { hz };
        let config = Config { pace, worker: Some(Arc::clone(&worker)), ..Config::default() };
        let domain = Srcu::try_new(platform, config).unwrap();
        let linux =
            Self { time, worker: Turned(worker), domain, jiffy: NANOS_PER_SECOND / u64::from(hz) };
        linux.set(BEGIN, linux.jiffy / 2);
        linux
    }

    pub(crate) fn new() -> Self {
        Self::at(HZ)
    }

    /// Makes it `nanos` past the beginning of `jiffy`.
    pub(crate) fn set(&self, jiffy: u64, nanos: u64) {
        self.time.now.store(jiffy * self.jiffy + nanos, Ordering::Relaxed);
    }

    /// The jiffy that it is, as seen from [`BEGIN`].
    pub(crate) fn jiffies(&self) -> u64 {
        self.time.now.load(Ordering::Relaxed) / self.jiffy - BEGIN
    }

    /// Turns the worker. Returns the jiffy that it is to be turned in next, as seen from [`BEGIN`].
    pub(crate) fn turn(&self) -> Option<u64> {
        let next = self.worker.0.turn();
        if next == Instant::NEVER {
            return None;
        }
        assert_eq!(next.as_nanos() % self.jiffy, 0, "a timer fires at a tick");
        Some(next.as_nanos() / self.jiffy - BEGIN)
    }

    /// Turns the worker when it is due and not before, until nothing is left to do. Returns the jiffies of the turns.
    pub(crate) fn turns(&self) -> Vec<u64> {
        let mut turns = vec![self.jiffies()];
        while let Some(next) = self.turn() {
            self.set(BEGIN + next, 0);
            turns.push(next);
        }
        turns
    }

    /// A thread that does `work` to the domain; returns when it has gone to sleep.
    pub(crate) fn asleep(&self, work: fn(&Srcu)) -> Thread {
        let done = Arc::new(AtomicBool::new(false));
        let thread = {
            let (domain, done) = (self.domain.clone(), Arc::clone(&done));
            thread::spawn(move || {
                work(&domain);
                done.store(true, Ordering::SeqCst);
            })
        };
        self.time.wait_for_sleepers(1);
        Thread { done, thread }
    }
}

pub(crate) struct Thread {
    done: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Thread {
    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Ordering::SeqCst)
    }

    pub(crate) fn join(self) {
        self.thread.join().unwrap();
    }
}

/// The order in which callbacks ran, and the jiffy of each.
#[derive(Default)]
pub(crate) struct Log {
    ran: Mutex<Vec<(&'static str, u64)>>,
}

impl Log {
    pub(crate) fn callback(log: &Arc<Self>, linux: &Linux, name: &'static str) -> Callback {
        let (log, time, jiffy) = (Arc::clone(log), Arc::clone(&linux.time), linux.jiffy);
        Callback::try_new(move || {
            let now = time.now.load(Ordering::Relaxed) / jiffy - BEGIN;
            log.ran.lock().unwrap().push((name, now));
        })
        .unwrap()
    }

    pub(crate) fn take(&self) -> Vec<(&'static str, u64)> {
        std::mem::take(&mut self.ran.lock().unwrap())
    }
}
