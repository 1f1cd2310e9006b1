//! Versions that readers find and updaters replace, for the tests under shuttle.
//!
//! A version that was freed is poisoned, and a reader never sees a poisoned one. Each is freed once.

use std::sync::Arc as StdArc;

use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use shuttle::thread::{self, JoinHandle};

use mayfly_platform::sync::AtomicU32;
use mayfly_platform::time::Instant;
use mayfly_platform::{Layer, Model, Platform, check_schedules};
use mayfly_srcu::{Callback, Config, Section, Srcu};

pub(crate) fn check(model: impl Fn() + Send + Sync + 'static) {
    check_schedules(10_000, 5_000, model);
}

/// A platform where no deadline ever comes: what is not woken sleeps on, so who relies on the worker looking by itself
/// now and then is found out.
pub(crate) struct Patient(Model);

// SAFETY: as the model's, which waits longer is all that is different.
unsafe impl Layer for Patient {
    type Below = Model;

    fn below(&self) -> &Model {
        &self.0
    }

    fn wait_until(&self, word: &AtomicU32, expected: u32, _: Instant) {
        self.0.wait(word, expected);
    }
}

pub(crate) fn platform() -> StdArc<dyn Platform> {
    StdArc::new(Patient(Model::new()))
}

pub(crate) fn domain(config: Config) -> Srcu {
    Srcu::try_new(platform(), config).unwrap()
}

/// How an updater has an old version freed.
pub(crate) const RECLAIM: [fn(&Versions, usize); 6] = [
    |versions, old| {
        versions.domain.synchronize();
        versions.state.free(old);
    },
    |versions, old| {
        versions.domain.synchronize_expedited();
        versions.state.free(old);
    },
    |versions, old| {
        let cookie = versions.domain.start_poll();
        if !versions.domain.poll(cookie) {
            versions.domain.cond_synchronize(cookie);
        }
        versions.state.free(old);
    },
    |versions, old| versions.domain.call(versions.freeing(old)),
    |versions, old| versions.domain.call_expedited(versions.freeing(old)),
    |versions, old| {
        if let Err(refused) = versions.domain.try_call(versions.freeing(old)) {
            versions.domain.synchronize_expedited();
            versions.domain.call(refused);
        }
    },
];

/// As many as a model replaces at most, and one.
pub(crate) const VERSIONS: usize = 32;

pub(crate) struct State {
    present: AtomicUsize,
    next: AtomicUsize,
    freed: [AtomicBool; VERSIONS],
}

impl State {
    pub(crate) fn free(&self, version: usize) {
        assert!(!self.freed[version].swap(true, Ordering::Relaxed), "freed twice");
    }
}

/// Versions that readers find and updaters replace.
#[derive(Clone)]
pub(crate) struct Versions {
    pub(crate) domain: Srcu,
    pub(crate) state: Arc<State>,
}

impl Versions {
    pub(crate) fn of(domain: &Srcu) -> Self {
        let state = State {
            present: AtomicUsize::new(0),
            next: AtomicUsize::new(1),
            freed: std::array::from_fn(|_| AtomicBool::new(false)),
        };
        Self { domain: domain.clone(), state: Arc::new(state) }
    }

    /// Looks at one version for a while.
    pub(crate) fn read(&self, _inside: &impl Section) {
        let version = self.state.present.load(Ordering::Acquire);
        for _ in 0..3 {
            assert!(!self.state.freed[version].load(Ordering::Relaxed), "read after free");
        }
    }

    pub(crate) fn replace(&self) -> usize {
        let fresh = self.state.next.fetch_add(1, Ordering::Relaxed);
        self.state.present.swap(fresh, Ordering::AcqRel)
    }

    /// Frees `version`, later.
    pub(crate) fn freeing(&self, version: usize) -> Callback {
        let state = Arc::clone(&self.state);
        Callback::try_new(move || state.free(version)).unwrap()
    }

    pub(crate) fn is_freed(&self, version: usize) -> bool {
        self.state.freed[version].load(Ordering::Relaxed)
    }

    /// Everything that was replaced is freed, and the present version is not.
    pub(crate) fn assert_nothing_lost(&self) {
        let replaced = self.state.next.load(Ordering::Relaxed);
        let freed = (0..replaced).filter(|version| self.is_freed(*version)).count();
        assert_eq!(freed, replaced - 1);
        assert!(!self.is_freed(self.state.present.load(Ordering::Relaxed)));
        assert_eq!(self.domain.stats().deferred, 0);
    }

    pub(crate) fn spawn(&self, life: impl FnOnce(&Self) + Send + 'static) -> JoinHandle<()> {
        let versions = self.clone();
        thread::spawn(move || life(&versions))
    }

    /// A reader with a record, which sometimes nests.
    pub(crate) fn reader(&self) -> JoinHandle<()> {
        let reader = self.domain.reader().unwrap();
        self.spawn(move |versions| {
            for _ in 0..3 {
                let outer = reader.lock();
                versions.read(&outer);
                if thread_rng().gen_bool(0.5) {
                    let inner = reader.lock();
                    versions.read(&inner);
                    // Guards of one reader may end in any order.
                    drop(outer);
                    versions.read(&inner);
                }
            }
        })
    }

    /// Readers that come and go, so that records change hands.
    pub(crate) fn passing_readers(&self) -> JoinHandle<()> {
        self.spawn(|versions| {
            for _ in 0..2 {
                let reader = versions.domain.reader().unwrap();
                versions.read(&reader.lock());
            }
        })
    }

    pub(crate) fn anonymous_reader(&self) -> JoinHandle<()> {
        self.spawn(|versions| {
            for _ in 0..2 {
                let outer = versions.domain.read_lock();
                versions.read(&outer);
                let next = versions.domain.read_lock();
                drop(outer);
                versions.read(&next);
            }
        })
    }

    pub(crate) fn updater(&self) -> JoinHandle<()> {
        self.spawn(|versions| {
            for _ in 0..3 {
                let old = versions.replace();
                RECLAIM[thread_rng().gen_range(0..RECLAIM.len())](versions, old);
            }
        })
    }
}

pub(crate) fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}
