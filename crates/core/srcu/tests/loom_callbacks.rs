//! Who runs callbacks, and who owns their domain, under loom.

#![cfg(mayfly_loom)]

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use mayfly_platform::{Context, Layer, Model};
use mayfly_srcu::{Callback, Config, Srcu, Worker};

fn check(model: impl Fn() + Send + Sync + 'static) {
    check_up_to(3, model);
}

/// With so many preemptions at most, where more take minutes.
fn check_up_to(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.max_branches = 100_000;
    let bound = builder.preemption_bound.get_or_insert(preemptions);
    *bound = preemptions.min(*bound);
    builder.check(model);
}

fn domain(worker: Option<std::sync::Arc<Worker>>) -> Srcu {
    let config = Config { worker, ..Config::default() };
    Srcu::try_new(std::sync::Arc::new(Model::new()), config).unwrap()
}

fn worker() -> std::sync::Arc<Worker> {
    std::sync::Arc::new(Worker::new(std::sync::Arc::new(Model::new())))
}

/// What a callback writes, and whoever comes after it reads.
#[derive(Clone)]
struct Written(Arc<UnsafeCell<u32>>);

// SAFETY: loom checks every access to the cell.
unsafe impl Send for Written {}
// SAFETY: as above.
unsafe impl Sync for Written {}

impl Written {
    fn new() -> Self {
        Self(Arc::new(UnsafeCell::new(0)))
    }

    fn write(&self) {
        // SAFETY: loom checks it.
        self.0.with_mut(|written| unsafe { *written += 1 });
    }

    fn writing(&self) -> Callback {
        let this = self.clone();
        Callback::try_new(move || this.write()).unwrap()
    }

    fn assert_is(&self, expected: u32) {
        // SAFETY: loom checks it.
        self.0.with(|written| assert_eq!(unsafe { *written }, expected));
    }
}

fn counting(ran: &Arc<AtomicUsize>) -> Callback {
    let ran = Arc::clone(ran);
    Callback::try_new(move || {
        ran.fetch_add(1, Ordering::Relaxed);
    })
    .unwrap()
}

#[test]
fn a_barrier_waits_for_two_threads_that_each_run_callbacks() {
    check_up_to(2, || {
        let domain = domain(None);
        let written = [Written::new(), Written::new()];
        for written in &written {
            domain.call(written.writing());
        }
        let tickers = [(); 2].map(|()| {
            let domain = domain.clone();
            thread::spawn(move || {
                domain.tick();
            })
        });
        domain.barrier();
        written.iter().for_each(|written| written.assert_is(1));
        for ticker in tickers {
            ticker.join().unwrap();
        }
    });
}

#[test]
fn of_two_barriers_each_waits_for_a_callback_that_the_other_is_running() {
    check(|| {
        let domain = domain(None);
        let written = Written::new();
        domain.call(written.writing());
        let other = {
            let (domain, written) = (domain.clone(), written.clone());
            thread::spawn(move || {
                domain.barrier();
                written.assert_is(1);
            })
        };
        domain.barrier();
        written.assert_is(1);
        other.join().unwrap();
    });
}

#[test]
fn whoever_sees_that_nothing_is_deferred_sees_what_the_callbacks_did() {
    check(|| {
        let domain = domain(None);
        let written = Written::new();
        domain.call(written.writing());
        let ticker = {
            let domain = domain.clone();
            thread::spawn(move || {
                domain.tick();
            })
        };
        if !domain.tick() {
            written.assert_is(1);
        }
        ticker.join().unwrap();
    });
}

/// A model that does not say what runs.
struct Silent(Model);

// SAFETY: as the model, which leaves out what may be left out.
unsafe impl Layer for Silent {
    type Below = Model;

    fn below(&self) -> &Model {
        &self.0
    }

    fn context(&self) -> Option<Context> {
        None
    }
}

#[test]
fn what_is_asked_for_has_run_when_all_threads_are_back_that_asked_or_ran_callbacks() {
    let say: fn() -> Srcu = || domain(None);
    let silent: fn() -> Srcu = || {
        let platform = std::sync::Arc::new(Silent(Model::new()));
        Srcu::try_new(platform, Config::default()).unwrap()
    };
    for domain in [say, silent] {
        check_up_to(2, move || {
            let (domain, written) = (domain(), [Written::new(), Written::new()]);
            let asks = {
                let (domain, writing) = (domain.clone(), written[0].writing());
                let work = move || {
                    domain.try_call(writing).unwrap();
                    domain.expedite();
                };
                Callback::try_new(work).unwrap()
            };
            domain.try_call(asks).unwrap();
            let other = {
                let domain = domain.clone();
                thread::spawn(move || domain.expedite())
            };
            domain.try_call(written[1].writing()).unwrap();
            domain.expedite();
            other.join().unwrap();
            assert_eq!(domain.stats().deferred, 0);
            // Acquires what was done by the other thread.
            domain.barrier();
            written.iter().for_each(|written| written.assert_is(1));
        });
    }
}

#[test]
fn what_a_grace_period_under_way_comes_too_late_for_waits_for_the_next() {
    check_up_to(2, || {
        let domain = domain(None);
        let (unpublished, freed) = (Arc::new(AtomicUsize::new(0)), Written::new());
        let reader = {
            let (reader, unpublished) = (domain.reader().unwrap(), Arc::clone(&unpublished));
            let freed = freed.clone();
            thread::spawn(move || {
                let _section = reader.lock();
                if unpublished.load(Ordering::Acquire) == 0 {
                    freed.assert_is(0);
                }
            })
        };
        let starter = {
            let domain = domain.clone();
            thread::spawn(move || domain.start_poll())
        };
        unpublished.store(1, Ordering::Release);
        domain.call(freed.writing());
        // Whatever has been started and is over by now.
        domain.tick();
        reader.join().unwrap();
        let _ = starter.join().unwrap();
        domain.barrier();
        freed.assert_is(1);
    });
}

#[test]
fn who_defers_and_synchronises_runs_it_though_a_grace_period_starts_between() {
    check(|| {
        let (domain, written) = (domain(None), Written::new());
        let starter = {
            let domain = domain.clone();
            thread::spawn(move || domain.start_poll())
        };
        domain.call(written.writing());
        domain.synchronize();
        written.assert_is(1);
        let _ = starter.join().unwrap();
    });
}

#[test]
fn the_last_handle_that_goes_while_the_worker_turns_takes_the_domain_with_it() {
    check(|| {
        let (worker, ran) = (worker(), Arc::new(AtomicUsize::new(0)));
        let domain = domain(Some(std::sync::Arc::clone(&worker)));
        domain.call(counting(&ran));
        let turner = {
            let worker = std::sync::Arc::clone(&worker);
            thread::spawn(move || {
                worker.turn();
            })
        };
        drop(domain);
        turner.join().unwrap();
        // Whoever gave up the last handle has run what there was, and the list has it no more.
        assert_eq!(ran.load(Ordering::Relaxed), 1);
        worker.turn();
        assert_eq!(std::sync::Arc::strong_count(&worker), 1);
    });
}

#[test]
fn two_threads_that_turn_one_worker_take_up_a_domain_that_is_attached_meanwhile() {
    check(|| {
        let (worker, ran) = (worker(), Arc::new(AtomicUsize::new(0)));
        let domain = domain(Some(std::sync::Arc::clone(&worker)));
        let turners = [(); 2].map(|()| {
            let worker = std::sync::Arc::clone(&worker);
            thread::spawn(move || {
                worker.turn();
            })
        });
        domain.call(counting(&ran));
        for turner in turners {
            turner.join().unwrap();
        }
        worker.turn();
        assert_eq!(ran.load(Ordering::Relaxed), 1);
    });
}

/// Why a grace period that finds nobody registered may do without the heavy barrier, whoever relies on it.
#[test]
fn a_grace_period_without_heavy_barrier_has_no_reader_that_others_rely_on_it_for() {
    check(|| {
        let domain = domain(None);
        let replaced = Arc::new(AtomicUsize::new(0));
        let reader = {
            let (domain, replaced) = (domain.clone(), Arc::clone(&replaced));
            thread::spawn(move || {
                let section = domain.reader().unwrap().lock_owned();
                (replaced.load(Ordering::Acquire) == 0, section)
            })
        };
        let starter = {
            let domain = domain.clone();
            thread::spawn(move || domain.start_poll())
        };
        replaced.store(1, Ordering::Release);
        let relied_on = domain.cookie();
        let started = starter.join().unwrap();
        // Inside still, so this is a reader that it had to find.
        let (found_old, section) = reader.join().unwrap();
        let passed_none = domain.stats().heavy_barriers == 0;
        assert!(!(relied_on == started && found_old && passed_none), "nothing ordered the two");
        drop(section);
    });
}
