//! The whole domain under shuttle: more threads and longer lives than loom can go through, in schedules drawn at random
//! and by probabilistic concurrency testing (PCT). Sequentially consistent, so this is about schedules; loom and
//! `store_buffers` are about memory orders.
//!
//! A version that was freed is poisoned, and a reader never sees a poisoned one. Each is freed once. A thread that is
//! never woken is a deadlock, which shuttle reports with the schedule that led there.

#![cfg(mayfly_shuttle)]

use std::sync::Arc as StdArc;

use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use shuttle::thread::{self, JoinHandle};

use mayfly_platform::sync::AtomicU32;
use mayfly_platform::time::Instant;
use mayfly_platform::{Layer, Model, Platform, check_schedules};
use mayfly_srcu::{Callback, Config, Limits, RcuBox, Section, Srcu, Worker};

fn check(model: impl Fn() + Send + Sync + 'static) {
    check_schedules(10_000, 5_000, model);
}

/// A platform where no deadline ever comes: what is not woken sleeps on, so who relies on the worker looking by itself
/// now and then is found out.
struct Patient(Model);

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

fn platform() -> StdArc<dyn Platform> {
    StdArc::new(Patient(Model::new()))
}

fn domain(config: Config) -> Srcu {
    Srcu::try_new(platform(), config).unwrap()
}

/// A worker, and a domain of its.
fn worked(limits: Limits) -> (StdArc<Worker>, Srcu) {
    let worker = StdArc::new(Worker::new(platform()));
    let config = Config { worker: Some(StdArc::clone(&worker)), limits, ..Config::default() };
    (worker, domain(config))
}

fn run(worker: &StdArc<Worker>) -> JoinHandle<()> {
    let worker = StdArc::clone(worker);
    thread::spawn(move || worker.run())
}

/// How an updater has an old version freed.
const RECLAIM: [fn(&Versions, usize); 6] = [
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
const VERSIONS: usize = 32;

struct State {
    present: AtomicUsize,
    next: AtomicUsize,
    freed: [AtomicBool; VERSIONS],
}

impl State {
    fn free(&self, version: usize) {
        assert!(!self.freed[version].swap(true, Ordering::Relaxed), "freed twice");
    }
}

/// Versions that readers find and updaters replace.
#[derive(Clone)]
struct Versions {
    domain: Srcu,
    state: Arc<State>,
}

impl Versions {
    fn of(domain: &Srcu) -> Self {
        let state = State {
            present: AtomicUsize::new(0),
            next: AtomicUsize::new(1),
            freed: std::array::from_fn(|_| AtomicBool::new(false)),
        };
        Self { domain: domain.clone(), state: Arc::new(state) }
    }

    /// Looks at one version for a while.
    fn read(&self, _inside: &impl Section) {
        let version = self.state.present.load(Ordering::Acquire);
        for _ in 0..3 {
            assert!(!self.state.freed[version].load(Ordering::Relaxed), "read after free");
        }
    }

    fn replace(&self) -> usize {
        let fresh = self.state.next.fetch_add(1, Ordering::Relaxed);
        self.state.present.swap(fresh, Ordering::AcqRel)
    }

    /// Frees `version`, later.
    fn freeing(&self, version: usize) -> Callback {
        let state = Arc::clone(&self.state);
        Callback::try_new(move || state.free(version)).unwrap()
    }

    fn is_freed(&self, version: usize) -> bool {
        self.state.freed[version].load(Ordering::Relaxed)
    }

    /// Everything that was replaced is freed, and the present version is not.
    fn assert_nothing_lost(&self) {
        let replaced = self.state.next.load(Ordering::Relaxed);
        let freed = (0..replaced).filter(|version| self.is_freed(*version)).count();
        assert_eq!(freed, replaced - 1);
        assert!(!self.is_freed(self.state.present.load(Ordering::Relaxed)));
        assert_eq!(self.domain.stats().deferred, 0);
    }

    fn spawn(&self, life: impl FnOnce(&Self) + Send + 'static) -> JoinHandle<()> {
        let versions = self.clone();
        thread::spawn(move || life(&versions))
    }

    /// A reader with a record, which sometimes nests.
    fn reader(&self) -> JoinHandle<()> {
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
    fn passing_readers(&self) -> JoinHandle<()> {
        self.spawn(|versions| {
            for _ in 0..2 {
                let reader = versions.domain.reader().unwrap();
                versions.read(&reader.lock());
            }
        })
    }

    fn anonymous_reader(&self) -> JoinHandle<()> {
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

    fn updater(&self) -> JoinHandle<()> {
        self.spawn(|versions| {
            for _ in 0..3 {
                let old = versions.replace();
                RECLAIM[thread_rng().gen_range(0..RECLAIM.len())](versions, old);
            }
        })
    }
}

fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn without_a_worker_nobody_reads_what_was_freed_and_nothing_is_lost() {
    check(|| {
        let versions = Versions::of(&domain(Config::default()));
        join([
            versions.reader(),
            versions.passing_readers(),
            versions.anonymous_reader(),
            versions.updater(),
            versions.updater(),
            versions.spawn(|versions| {
                versions.domain.tick();
            }),
        ]);
        versions.domain.barrier();
        versions.assert_nothing_lost();
    });
}

#[test]
fn with_a_worker_nobody_reads_what_was_freed_and_nothing_is_lost() {
    check(|| {
        let (worker, domain) = worked(Limits::default());
        let versions = Versions::of(&domain);
        let turning = run(&worker);
        join([
            versions.reader(),
            versions.passing_readers(),
            versions.anonymous_reader(),
            versions.updater(),
            versions.updater(),
        ]);
        domain.barrier();
        versions.assert_nothing_lost();
        worker.stop();
        join([turning]);
    });
}

#[test]
fn a_worker_keeps_every_domain_whoever_is_attached_while_it_turns() {
    check(|| {
        let (worker, first) = worked(Limits::default());
        let config = || Config { worker: Some(StdArc::clone(&worker)), ..Config::default() };
        let [held, one, other] =
            [first, domain(config()), domain(config())].map(|domain| Versions::of(&domain));
        let turning = run(&worker);
        let expedite = |versions: &Versions| {
            let old = versions.replace();
            versions.domain.call_expedited(versions.freeing(old));
        };
        let settle = |versions: &Versions| {
            while versions.domain.stats().deferred > 0 {
                thread::yield_now();
            }
        };
        // Stays listed, for it has a reader.
        let section = held.domain.read_lock();
        expedite(&held);
        join([&one, &other].map(|versions| {
            versions.spawn(move |versions| {
                for _ in 0..3 {
                    expedite(versions);
                    settle(versions);
                }
            })
        }));
        drop(section);
        settle(&held);
        for versions in [held, one, other] {
            versions.assert_nothing_lost();
        }
        worker.stop();
        join([turning]);
    });
}

#[test]
fn a_callback_that_blocks_keeps_one_thread_of_a_worker_and_another_sees_to_the_other_domains() {
    check(|| {
        let (worker, first) = worked(Limits::default());
        let config = || Config { worker: Some(StdArc::clone(&worker)), ..Config::default() };
        let others = [domain(config()), domain(config())];
        let turning = [(); 2].map(|()| run(&worker));
        let ran = Arc::new(AtomicUsize::new(0));
        let defer = |domain: &Srcu, ran: &Arc<AtomicUsize>| {
            let ran = Arc::clone(ran);
            let callback = move || _ = ran.fetch_add(1, Ordering::Relaxed);
            domain.call_expedited(Callback::try_new(callback).unwrap());
        };
        const EACH: usize = 3;
        let blocked = Arc::clone(&ran);
        let deferring = others.clone().map(|domain| {
            let ran = Arc::clone(&ran);
            thread::spawn(move || (0..EACH).for_each(|_| defer(&domain, &ran)))
        });
        let blocking = move || {
            while blocked.load(Ordering::Relaxed) < 2 * EACH {
                thread::yield_now();
            }
        };
        first.call_expedited(Callback::try_new(blocking).unwrap());
        join(deferring);
        while first.stats().callbacks == 0 {
            thread::yield_now();
        }
        worker.stop();
        join(turning);
    });
}

#[test]
fn at_the_bound_nobody_reads_what_was_freed_and_nothing_is_lost() {
    check(|| {
        let limits = Limits { soft_count: 0, hard_count: 2, ..Limits::default() };
        let versions = Versions::of(&domain(Config { limits, ..Config::default() }));
        join([versions.reader(), versions.reader(), versions.updater(), versions.updater()]);
        versions.domain.barrier();
        versions.assert_nothing_lost();
        assert!(versions.domain.stats().peak_deferred <= 2);
    });
}

#[test]
fn past_the_soft_bound_whoever_defers_runs_no_more_than_a_share_and_frees_nothing_early() {
    check(|| {
        let limits = Limits { soft_count: 0, ..Limits::default() };
        let versions = Versions::of(&domain(Config { limits, run_inline: 1, ..Config::default() }));
        let readers = [versions.reader(), versions.anonymous_reader()];
        join([versions.updater(), versions.updater()]);
        join(readers);
        versions.domain.barrier();
        versions.assert_nothing_lost();
    });
}

#[test]
fn a_synchroniser_that_comes_while_a_lazy_grace_period_is_in_flight_waits_for_its_own_readers() {
    check(|| {
        let versions = Versions::of(&domain(Config::default()));
        let readers = [versions.reader(), versions.reader(), versions.anonymous_reader()];
        let first = versions.replace();
        versions.domain.call(versions.freeing(first));
        let lazy = versions.domain.start_poll();
        let hurried = versions.spawn(|versions| {
            let second = versions.replace();
            versions.domain.synchronize_expedited();
            versions.state.free(second);
        });
        join([hurried]);
        // The later grace period completed the earlier one, and ran what had been deferred before it.
        assert!(versions.domain.poll(lazy));
        assert!(versions.is_freed(first));
        join(readers);
        versions.assert_nothing_lost();
    });
}

#[test]
fn a_barrier_returns_when_all_that_was_deferred_before_it_has_run() {
    check(|| {
        let (worker, domain) = worked(Limits::default());
        let versions = Versions::of(&domain);
        let turning = run(&worker);
        let mut threads = vec![versions.reader(), versions.anonymous_reader()];
        threads.extend((0..2).map(|_| {
            versions.spawn(|versions| {
                for reclaim in [&RECLAIM[3], &RECLAIM[4]] {
                    let old = versions.replace();
                    reclaim(versions, old);
                    versions.domain.barrier();
                    assert!(versions.is_freed(old));
                }
            })
        }));
        join(threads);
        worker.stop();
        join([turning]);
    });
}

#[test]
fn an_expedited_callback_runs_when_its_readers_have_left_though_nobody_waits_for_it() {
    check(|| {
        let (worker, domain) = worked(Limits::default());
        let versions = Versions::of(&domain);
        let turning = run(&worker);
        let mut threads = vec![versions.reader(), versions.anonymous_reader()];
        threads.push(versions.anonymous_reader());
        threads.extend((0..2).map(|_| {
            versions.spawn(|versions| {
                let freed =
                    Arc::new((shuttle::sync::Mutex::new(false), shuttle::sync::Condvar::new()));
                let (old, signal) = (versions.replace(), Arc::clone(&freed));
                let state = Arc::clone(&versions.state);
                let work = move || {
                    state.free(old);
                    *signal.0.lock().unwrap() = true;
                    signal.1.notify_one();
                };
                versions.domain.call_expedited(Callback::try_new(work).unwrap());
                let mut done = freed.0.lock().unwrap();
                while !*done {
                    done = freed.1.wait(done).unwrap();
                }
            })
        }));
        join(threads);
        domain.barrier();
        versions.assert_nothing_lost();
        worker.stop();
        join([turning]);
    });
}

#[test]
fn a_callback_deferred_while_another_is_refused_is_seen_by_the_worker() {
    check(|| {
        let limits = Limits { hard_bytes: 10_000, ..Limits::default() };
        let (worker, domain) = worked(limits);
        let defer = |domain: &Srcu| {
            let half = RcuBox::try_new_holding(0_u8, 6_000).unwrap().into_callback();
            domain.try_call(half).is_ok()
        };
        let other = {
            let domain = domain.clone();
            thread::spawn(move || defer(&domain))
        };
        let deferred = [defer(&domain), other.join().unwrap()];
        assert!(deferred.contains(&true), "there is room for one of them");
        worker.turn();
        assert_eq!(domain.stats().callbacks, deferred.iter().filter(|&&ok| ok).count() as u64);
    });
}

#[test]
fn nobody_sees_more_deferred_than_the_bound_allows() {
    check(|| {
        let limits = Limits { hard_count: 1, ..Limits::default() };
        let domain = domain(Config { limits, ..Config::default() });
        let section = domain.read_lock();
        let deferrers = [(); 2].map(|()| {
            let domain = domain.clone();
            thread::spawn(move || {
                drop(domain.try_call(Callback::try_new(|| ()).unwrap()));
            })
        });
        assert!(domain.stats().deferred <= 1);
        join(deferrers);
        assert_eq!(domain.stats().deferred, 1);
        drop(section);
        domain.barrier();
    });
}

/// What is being done with a worker's list when the worker is stopped.
const AT_THE_LIST: [fn(&Worker, Srcu); 2] = [
    |worker, _| {
        worker.turn();
    },
    |_, domain| drop(domain),
];

#[test]
fn a_worker_that_is_stopped_while_its_list_is_worked_on_lets_go_of_every_domain() {
    for work in AT_THE_LIST {
        check(move || {
            let (worker, domain) = worked(Limits::default());
            let ran = Arc::new(AtomicUsize::new(0));
            let count = {
                let ran = Arc::clone(&ran);
                move || {
                    ran.fetch_add(1, Ordering::Relaxed);
                }
            };
            let section = domain.read_lock();
            domain.call(Callback::try_new(count).unwrap());
            let working = {
                let (worker, domain) = (StdArc::clone(&worker), domain.clone());
                thread::spawn(move || work(&worker, domain))
            };
            worker.stop();
            join([working]);
            drop(section);
            drop(domain);
            assert_eq!(ran.load(Ordering::Relaxed), 1, "the worker still has the domain");
        });
    }
}

#[test]
fn a_worker_that_is_stopped_lets_go_of_every_domain() {
    check(|| {
        let worker = StdArc::new(Worker::new(platform()));
        let turning = run(&worker);
        let ran = Arc::new(AtomicUsize::new(0));
        let deferrers = [(); 3].map(|()| {
            let (worker, ran) = (StdArc::clone(&worker), Arc::clone(&ran));
            thread::spawn(move || {
                let domain = domain(Config { worker: Some(worker), ..Config::default() });
                let count = move || {
                    ran.fetch_add(1, Ordering::Relaxed);
                };
                domain.call(Callback::try_new(count).unwrap());
            })
        });
        worker.stop();
        join(deferrers);
        join([turning]);
        // Whoever let go of a domain last has run what it held.
        assert_eq!(ran.load(Ordering::Relaxed), 3);
    });
}
