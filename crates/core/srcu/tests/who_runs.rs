//! Who runs callbacks: each no more than its share, and where nobody that waits does, a worker or a tick.

#![cfg(not(any(mayfly_loom, mayfly_shuttle)))]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

use mayfly_platform::Host;
use mayfly_srcu::{BuildError, Callback, Config, Limits, Srcu, Worker, WorkerThread};

fn with(config: Config) -> Srcu {
    Srcu::try_new(Arc::new(Host::new()), config).unwrap()
}

/// Threads that have run callbacks, one for each.
#[derive(Clone, Default)]
struct Ran(Arc<Mutex<Vec<ThreadId>>>);

impl Ran {
    fn noting(&self) -> Callback {
        let ran = self.clone();
        Callback::try_new(move || ran.0.lock().unwrap().push(thread::current().id())).unwrap()
    }

    fn all(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    fn here(&self) -> usize {
        let here = thread::current().id();
        self.0.lock().unwrap().iter().filter(|&&ran| ran == here).count()
    }

    fn wait_for(&self, all: usize) {
        while self.all() < all {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// What is done on a domain, by its name.
type Done<F> = (&'static str, F);

/// What a waiter does that runs what is ready.
const WAITS: [Done<fn(&Srcu)>; 4] = [
    ("synchronize", Srcu::synchronize),
    ("synchronize_expedited", Srcu::synchronize_expedited),
    ("cond_synchronize", |domain| {
        // Of a grace period that covers all that was deferred.
        let cookie = domain.cookie();
        domain.cond_synchronize(cookie);
    }),
    ("expedite", Srcu::expedite),
];

#[test]
fn who_waits_runs_its_share_and_leaves_the_rest_to_who_comes_next() {
    for (name, wait) in WAITS {
        let domain = with(Config { run_inline: 8, ..Config::default() });
        let ran = Ran::default();
        (0..20).for_each(|_| domain.call(ran.noting()));
        for expected in [8, 16, 20, 20] {
            wait(&domain);
            assert_eq!(ran.all(), expected, "{name}");
        }
    }
}

#[test]
fn past_the_soft_bound_who_defers_runs_its_share_at_most() {
    let limits = Limits { soft_count: 64, ..Limits::default() };
    let domain = with(Config { limits, run_inline: 8, ..Config::default() });
    let ran = Ran::default();
    for _ in 0..1000 {
        let before = ran.all();
        domain.call(ran.noting());
        assert!(ran.all() - before <= 8);
    }
    assert!(ran.all() > 0, "none was ready");
}

#[test]
fn at_the_hard_bound_who_defers_runs_its_own_and_its_share() {
    let limits = Limits { hard_count: 100, ..Limits::default() };
    let domain = with(Config { limits, run_inline: 8, ..Config::default() });
    let ran = Ran::default();
    for _ in 0..1000 {
        let before = ran.all();
        domain.call(ran.noting());
        assert!(ran.all() - before <= 8 + 1);
    }
    assert!(domain.stats().calls_at_bound > 0, "the bound was not reached");
}

#[test]
fn what_a_waiter_leaves_the_worker_runs() {
    let worker = WorkerThread::spawn(Arc::new(Host::new())).unwrap();
    for run_inline in [0, 8] {
        let worker = Some(Arc::clone(worker.worker()));
        let domain = with(Config { run_inline, worker, ..Config::default() });
        for (_, wait) in WAITS {
            let ran = Ran::default();
            (0..200).for_each(|_| domain.call(ran.noting()));
            wait(&domain);
            ran.wait_for(200);
            assert!(ran.here() <= run_inline);
        }
    }
}

#[test]
fn with_no_share_a_tick_runs_everything() {
    let domain = with(Config { run_inline: 0, ticks: true, ..Config::default() });
    let ran = Ran::default();
    (0..200).for_each(|_| domain.call(ran.noting()));
    for (_, wait) in WAITS {
        wait(&domain);
    }
    assert_eq!(ran.all(), 0);
    assert!(!domain.tick());
    assert_eq!(ran.all(), 200);
}

#[test]
fn with_no_share_a_barrier_runs_everything_all_the_same() {
    let domain = with(Config { run_inline: 0, ticks: true, ..Config::default() });
    let ran = Ran::default();
    (0..200).for_each(|_| domain.call(ran.noting()));
    domain.barrier();
    assert_eq!(ran.here(), 200);
}

#[test]
fn with_no_share_a_call_at_the_hard_bound_runs_its_own_alone() {
    let limits = Limits { hard_count: 10, ..Limits::default() };
    let domain = with(Config { limits, run_inline: 0, ticks: true, ..Config::default() });
    let (others, own) = (Ran::default(), Ran::default());
    (0..10).for_each(|_| domain.call(others.noting()));
    domain.call(own.noting());
    assert_eq!((others.all(), own.here()), (0, 1));
}

#[test]
fn a_domain_whose_callbacks_nobody_would_run_is_not_built() {
    let worker = Arc::new(Worker::new(Arc::new(Host::new())));
    let build = |run_inline, worker: Option<&Arc<Worker>>, ticks| {
        let config = Config { run_inline, worker: worker.cloned(), ticks, ..Config::default() };
        Srcu::try_new(Arc::new(Host::new()), config).err()
    };
    assert_eq!(build(0, None, false), Some(BuildError::NobodyRuns));
    assert_eq!(build(0, Some(&worker), false), None);
    assert_eq!(build(0, None, true), None);
    assert_eq!(build(1, None, false), None);
}

fn panicking() -> Callback {
    Callback::try_new(|| panic!("as it should")).unwrap()
}

fn panics(work: impl FnOnce()) {
    assert!(catch_unwind(AssertUnwindSafe(work)).is_err());
}

#[test]
fn a_callback_that_panics_in_a_waiter_leaves_the_rest_to_the_worker() {
    let worker = WorkerThread::spawn(Arc::new(Host::new())).unwrap();
    let worker = Some(Arc::clone(worker.worker()));
    let domain = with(Config { run_inline: 8, worker, ..Config::default() });
    // Held up until all is there, so that it is the waiter who comes to it first.
    let section = domain.read_lock();
    let ran = Ran::default();
    domain.call(panicking());
    (0..200).for_each(|_| domain.call(ran.noting()));
    let waiter = {
        let domain = domain.clone();
        thread::spawn(move || domain.synchronize())
    };
    while domain.stats().sleeps == 0 {
        assert!(!waiter.is_finished(), "it did not wait");
        thread::yield_now();
    }
    drop(section);
    let _either_may_meet_it = waiter.join();
    ran.wait_for(200);
}

#[test]
fn at_the_hard_bound_a_callback_that_panics_takes_no_other_with_it() {
    let limits = Limits { hard_count: 3, ..Limits::default() };
    let domain = with(Config { limits, ..Config::default() });
    let (others, own) = (Ran::default(), Ran::default());
    domain.call(others.noting());
    domain.call(panicking());
    domain.call(others.noting());
    panics(|| domain.call(own.noting()));
    assert_eq!((others.all(), own.all()), (2, 1));
    assert_eq!((domain.stats().deferred, domain.stats().callbacks), (0, 4));
}

#[test]
fn at_the_hard_bound_ones_own_that_panics_takes_no_other_with_it() {
    let limits = Limits { hard_count: 2, ..Limits::default() };
    let domain = with(Config { limits, ..Config::default() });
    let others = Ran::default();
    (0..2).for_each(|_| domain.call(others.noting()));
    panics(|| domain.call(panicking()));
    domain.synchronize();
    assert_eq!((others.all(), domain.stats().deferred), (2, 0));
}

/// Defers itself again, until it has run far more often than anybody is to be kept for.
fn rearm(domain: &Arc<Srcu>, runs: &Arc<AtomicUsize>) {
    const KEPT: usize = 10_000;
    let (again, count) = (Arc::clone(domain), Arc::clone(runs));
    let work = move || {
        if count.fetch_add(1, Ordering::Relaxed) < KEPT {
            rearm(&again, &count);
        }
    };
    assert!(domain.try_call(Callback::try_new(work).unwrap()).is_ok());
}

#[test]
fn a_callback_that_defers_itself_again_keeps_nobody() {
    let worker = Arc::new(Worker::new(Arc::new(Host::new())));
    let turn = Arc::clone(&worker);
    let turn_it = move |_: &Srcu| _ = turn.turn();
    let tick = |domain: &Srcu| _ = domain.tick();
    let keeps = |name| -> &dyn Fn(&Srcu) {
        match name {
            "synchronize" => &Srcu::synchronize,
            "synchronize_expedited" => &Srcu::synchronize_expedited,
            "barrier" => &Srcu::barrier,
            "tick" => &tick,
            "expedite" => &Srcu::expedite,
            _ => &turn_it,
        }
    };
    let domain = Arc::new(with(Config { worker: Some(worker), ..Config::default() }));
    let runs = Arc::new(AtomicUsize::new(0));
    rearm(&domain, &runs);
    for name in ["synchronize", "synchronize_expedited", "barrier", "tick", "expedite", "turn"] {
        for _ in 0..10 {
            let before = runs.load(Ordering::Relaxed);
            keeps(name)(&domain);
            // A tick and a turn run what was ready when they came, and what has become so on the way.
            let ran = runs.load(Ordering::Relaxed) - before;
            assert!(ran <= 2, "{name} was kept for {ran} callbacks");
        }
    }
    // Another thread that waits is kept no longer where somebody runs it at the same time.
    let others = thread::spawn({
        let domain = Arc::clone(&domain);
        move || (0..100).for_each(|_| domain.barrier())
    });
    (0..100).for_each(|_| domain.barrier());
    others.join().unwrap();
    // It owns its domain.
    while runs.load(Ordering::Relaxed) <= 10_000 {
        domain.barrier();
    }
}

#[test]
fn a_waiter_runs_nothing_that_was_deferred_after_it_came_even_if_it_is_ready() {
    let config = Config { run_inline: usize::MAX, ..Config::default() };
    let domain = Srcu::try_new(Arc::new(Host::new()), config).unwrap();
    // Nobody would have to wait where nobody reads.
    let _reader = domain.reader().unwrap();
    let late = Arc::new(AtomicUsize::new(0));
    let callback = {
        let (domain, late) = (domain.clone(), Arc::clone(&late));
        Callback::try_new(move || {
            let count = Callback::try_new(move || {
                late.fetch_add(1, Ordering::SeqCst);
            });
            domain.try_call(count.unwrap()).unwrap();
            let cookie = domain.start_poll();
            assert!(domain.poll(cookie), "what was just deferred is ready");
        })
        .unwrap()
    };
    domain.call(callback);
    domain.synchronize();
    assert_eq!(late.load(Ordering::SeqCst), 0);
    domain.synchronize();
    assert_eq!(late.load(Ordering::SeqCst), 1);
}
