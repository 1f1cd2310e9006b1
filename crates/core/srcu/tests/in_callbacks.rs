//! Inside a callback no other callback runs, whatever the callback asks for; the thread that runs it does what was asked
//! for behind it, within its share.

#![cfg(not(any(mayfly_loom, mayfly_shuttle)))]

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use mayfly_platform::{Context, Host, Layer, Platform};
use mayfly_srcu::{Callback, Config, Limits, Srcu};

/// So deep that it is no share of any thread's, and no stack is used up by it.
const DEEP: usize = 200;

/// What a callback asks for, by its name.
type Asks = (&'static str, fn(&Srcu));

const ASKS: [Asks; 4] = [
    ("expedite", Srcu::expedite),
    ("tick", |domain| {
        // The second finds complete what the first has started.
        domain.tick();
        assert!(domain.tick(), "the callback itself is deferred still");
    }),
    ("cond_synchronize", |domain| {
        let cookie = domain.start_poll();
        assert!(domain.poll(cookie));
        domain.cond_synchronize(cookie);
    }),
    ("call_expedited", |domain| domain.call_expedited(Callback::try_new(|| ()).unwrap())),
];

/// What has callbacks run, by its name.
const RUNS: [Asks; 5] = [
    ("synchronize", Srcu::synchronize),
    ("synchronize_expedited", Srcu::synchronize_expedited),
    ("barrier", Srcu::barrier),
    ("expedite", Srcu::expedite),
    ("tick", |domain| _ = domain.tick()),
];

/// A host that does not say what runs.
struct Silent(Host);

// SAFETY: as the host, which leaves out what may be left out.
unsafe impl Layer for Silent {
    type Below = Host;

    fn below(&self) -> &Host {
        &self.0
    }

    fn context(&self) -> Option<Context> {
        None
    }
}

fn platforms() -> [Arc<dyn Platform>; 2] {
    [Arc::new(Host::new()), Arc::new(Silent(Host::new()))]
}

fn domain(platform: Arc<dyn Platform>, config: Config) -> Arc<Srcu> {
    Arc::new(Srcu::try_new(platform, config).unwrap())
}

/// How often a callback ran, and how deeply inside others.
#[derive(Default)]
struct Seen {
    runs: AtomicUsize,
    deepest: AtomicUsize,
    /// From now on it no longer defers itself.
    ends: AtomicBool,
}

thread_local!(static DEPTH: Cell<usize> = const { Cell::new(0) });

/// Defers itself again and asks for that to be run.
fn rearm(domain: &Arc<Srcu>, seen: &Arc<Seen>, ask: fn(&Srcu)) {
    let (again, count) = (Arc::clone(domain), Arc::clone(seen));
    let work = move || {
        let depth = DEPTH.get() + 1;
        DEPTH.set(depth);
        count.runs.fetch_add(1, Ordering::Relaxed);
        count.deepest.fetch_max(depth, Ordering::Relaxed);
        if depth < DEEP && !count.ends.load(Ordering::Relaxed) {
            rearm(&again, &count, ask);
            ask(&again);
        }
        DEPTH.set(depth - 1);
    };
    assert!(domain.try_call(Callback::try_new(work).unwrap()).is_ok());
}

#[test]
fn a_callback_that_defers_itself_and_asks_for_that_runs_inside_no_other_and_keeps_nobody() {
    const SHARE: usize = 8;
    for (run, runs) in RUNS {
        for (ask, asks) in ASKS {
            for platform in platforms() {
                let config = Config { run_inline: SHARE, ..Config::default() };
                let (domain, seen) = (domain(platform, config), Arc::new(Seen::default()));
                rearm(&domain, &seen, asks);
                runs(&domain);
                let ran = seen.runs.load(Ordering::Relaxed);
                let deepest = seen.deepest.load(Ordering::Relaxed);
                assert_eq!(deepest, 1, "{ask} in a callback that {run} runs");
                // Its own, and a share of what is asked for meanwhile.
                assert!((1..=1 + SHARE).contains(&ran), "{run} was kept for {ran} by {ask}");
                seen.ends.store(true, Ordering::Relaxed);
                domain.barrier();
            }
        }
    }
}

#[test]
fn what_a_callback_asks_for_has_run_when_the_thread_returns_that_ran_the_callback() {
    for (run, runs) in RUNS {
        for (ask, asks) in ASKS {
            for platform in platforms() {
                let domain = domain(platform, Config::default());
                let (ran, also, same) = (Arc::new(AtomicUsize::new(0)), 5, Arc::clone(&domain));
                let count = Arc::clone(&ran);
                let work = move || {
                    for _ in 0..also {
                        let count = Arc::clone(&count);
                        let late = move || _ = count.fetch_add(1, Ordering::Relaxed);
                        same.try_call(Callback::try_new(late).unwrap()).unwrap();
                    }
                    asks(&same);
                    assert_eq!(count.load(Ordering::Relaxed), 0, "{ask} ran some at once");
                };
                domain.try_call(Callback::try_new(work).unwrap()).unwrap();
                runs(&domain);
                assert_eq!(ran.load(Ordering::Relaxed), also, "{ask} inside {run}");
            }
        }
    }
}

#[test]
fn at_the_hard_bound_ones_own_callback_runs_no_other_either() {
    for platform in platforms() {
        // (The last would wait, in a callback.)
        for (ask, asks) in [ASKS[0], ASKS[1], ASKS[2]] {
            let limits = Limits { hard_count: 1, ..Limits::default() };
            let domain = domain(Arc::clone(&platform), Config { limits, ..Config::default() });
            let (ran, order) = mpsc::channel();
            let other = ran.clone();
            domain.call(Callback::try_new(move || other.send("another").unwrap()).unwrap());
            let same = Arc::clone(&domain);
            let own = move || {
                asks(&same);
                ran.send("its own").unwrap();
            };
            domain.call(Callback::try_new(own).unwrap());
            assert_eq!(order.iter().collect::<Vec<_>>(), ["its own", "another"], "{ask}");
        }
    }
}

#[test]
fn what_another_thread_asks_for_is_run_there_though_a_callback_runs_here() {
    let domain = domain(Arc::new(Host::new()), Config::default());
    let (inside, is_inside) = mpsc::channel();
    let (leave, may_leave) = mpsc::channel::<()>();
    let blocks = move || {
        inside.send(()).unwrap();
        may_leave.recv().unwrap();
    };
    domain.call(Callback::try_new(blocks).unwrap());
    let runner = {
        let domain = Arc::clone(&domain);
        thread::spawn(move || domain.synchronize())
    };
    is_inside.recv().unwrap();
    for (ask, asks) in [ASKS[0], ASKS[1], ASKS[2]] {
        let (ran, has_run) = mpsc::channel();
        domain.call(Callback::try_new(move || ran.send(()).unwrap()).unwrap());
        asks(&domain);
        assert!(has_run.try_recv().is_ok(), "{ask} left it to another thread");
    }
    leave.send(()).unwrap();
    runner.join().unwrap();
}

#[test]
fn where_nobody_says_what_runs_the_thread_that_runs_a_callback_is_asked_by_others_too() {
    let domain = domain(Arc::new(Silent(Host::new())), Config::default());
    let (inside, is_inside) = mpsc::channel();
    let (leave, may_leave) = mpsc::channel::<()>();
    let blocks = move || {
        inside.send(()).unwrap();
        may_leave.recv().unwrap();
    };
    domain.call(Callback::try_new(blocks).unwrap());
    let runner = {
        let domain = Arc::clone(&domain);
        thread::spawn(move || {
            domain.synchronize();
            domain.stats().deferred
        })
    };
    is_inside.recv().unwrap();
    let ran = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ran);
    let late = move || _ = count.fetch_add(1, Ordering::Relaxed);
    domain.call(Callback::try_new(late).unwrap());
    domain.expedite();
    assert_eq!(ran.load(Ordering::Relaxed), 0);
    leave.send(()).unwrap();
    assert_eq!(runner.join().unwrap(), 0);
    assert_eq!(ran.load(Ordering::Relaxed), 1);
}

#[test]
fn what_a_callback_asked_for_that_panics_is_left_where_it_was() {
    for platform in platforms() {
        let domain = domain(platform, Config::default());
        let (ran, same) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&domain));
        let count = Arc::clone(&ran);
        let work = move || {
            let late = move || _ = count.fetch_add(1, Ordering::Relaxed);
            same.try_call(Callback::try_new(late).unwrap()).unwrap();
            same.expedite();
            panic!("as it should");
        };
        domain.call(Callback::try_new(work).unwrap());
        assert!(catch_unwind(AssertUnwindSafe(|| domain.synchronize())).is_err());
        assert_eq!((ran.load(Ordering::Relaxed), domain.stats().deferred), (0, 1));
        assert!(!domain.tick());
        assert_eq!(ran.load(Ordering::Relaxed), 1);
    }
}
