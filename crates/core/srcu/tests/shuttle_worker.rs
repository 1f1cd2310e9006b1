//! Domains with a worker under shuttle. What is checked, and how, is at the top of `shuttle.rs`.

#![cfg(mayfly_shuttle)]

mod versions;

use std::sync::Arc as StdArc;

use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::thread::{self, JoinHandle};

use mayfly_srcu::{Callback, Config, Limits, RcuBox, Srcu, Worker};

use versions::{RECLAIM, Versions, check, domain, join, platform};

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

/// Checks `model` with versions in a domain whose worker a thread turns until the model ends.
fn check_beside_a_worker(model: impl Fn(&Versions) + Send + Sync + 'static) {
    check(move || {
        let (worker, domain) = worked(Limits::default());
        let turning = run(&worker);
        model(&Versions::of(&domain));
        worker.stop();
        join([turning]);
    });
}

#[test]
fn with_a_worker_nobody_reads_what_was_freed_and_nothing_is_lost() {
    check_beside_a_worker(|versions| {
        join([
            versions.reader(),
            versions.passing_readers(),
            versions.anonymous_reader(),
            versions.updater(),
            versions.updater(),
        ]);
        versions.domain.barrier();
        versions.assert_nothing_lost();
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
    const EACH: usize = 3;
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
fn a_barrier_returns_when_all_that_was_deferred_before_it_has_run() {
    check_beside_a_worker(|versions| {
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
    });
}

#[test]
fn an_expedited_callback_runs_when_its_readers_have_left_though_nobody_waits_for_it() {
    check_beside_a_worker(|versions| {
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
        versions.domain.barrier();
        versions.assert_nothing_lost();
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
