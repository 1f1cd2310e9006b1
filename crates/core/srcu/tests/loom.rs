//! The protocol under loom: every interleaving, and every value that a load may return, on the fenced path.
//!
//! What a reader may still read is a loom cell; whoever reclaims it writes it. Loom fails the model if the two are not
//! ordered. A waiter that is never woken is a deadlock, which loom reports.

#![cfg(mayfly_loom)]

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use mayfly_platform::Model;
use mayfly_srcu::{Callback, Config, Limits, Rcu, RcuBox, Reader, Section, Srcu, Worker};

/// Two versions; readers look at the one that `present` names.
struct Versions {
    present: AtomicUsize,
    cells: [UnsafeCell<u32>; 2],
}

// SAFETY: loom checks every access to the cells.
unsafe impl Sync for Versions {}
// SAFETY: as above.
unsafe impl Send for Versions {}

impl Versions {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            present: AtomicUsize::new(0),
            cells: [UnsafeCell::new(1), UnsafeCell::new(1)],
        })
    }

    fn read(&self, _inside: &impl Section) {
        let present = self.present.load(Ordering::Acquire);
        // SAFETY: loom checks it.
        self.cells[present].with(|cell| assert_eq!(unsafe { *cell }, 1, "read after free"));
    }

    fn publish_second(&self) {
        self.present.store(1, Ordering::Release);
    }

    fn free_first(&self) {
        // SAFETY: loom checks it.
        self.cells[0].with_mut(|cell| unsafe { *cell = 0 });
    }

    /// Publishes the second version, and frees the first when nobody can be reading it.
    fn replace_first(&self, domain: &Srcu) {
        self.publish_second();
        domain.synchronize();
        self.free_first();
    }

    fn defer_free(this: &Arc<Self>) -> Callback {
        let this = Arc::clone(this);
        Callback::try_new(move || this.free_first()).unwrap()
    }
}

fn domain() -> Srcu {
    with(Config::default())
}

fn with(config: Config) -> Srcu {
    Srcu::try_new(std::sync::Arc::new(Model::new()), config).unwrap()
}

fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.max_branches = 100_000;
    builder.preemption_bound.get_or_insert(3);
    builder.check(model);
}

fn read_in_thread(versions: &Arc<Versions>, reader: Reader) -> thread::JoinHandle<()> {
    let versions = Arc::clone(versions);
    thread::spawn(move || versions.read(&reader.lock()))
}

#[test]
fn a_reader_never_sees_what_a_synchroniser_freed() {
    check(|| {
        let (domain, versions) = (domain(), Versions::new());
        let reader = read_in_thread(&versions, domain.reader().unwrap());
        versions.replace_first(&domain);
        reader.join().unwrap();
    });
}

#[test]
fn an_anonymous_reader_never_sees_what_a_synchroniser_freed() {
    check(|| {
        let (domain, versions) = (domain(), Versions::new());
        let reader = {
            let (domain, versions) = (domain.clone(), Arc::clone(&versions));
            thread::spawn(move || {
                for _ in 0..2 {
                    versions.read(&domain.read_lock());
                }
            })
        };
        versions.replace_first(&domain);
        reader.join().unwrap();
    });
}

#[test]
fn a_reader_registered_meanwhile_never_sees_what_was_freed() {
    check(|| {
        let (domain, versions) = (domain(), Versions::new());
        let reader = {
            let (domain, versions) = (domain.clone(), Arc::clone(&versions));
            thread::spawn(move || {
                let reader = domain.reader().unwrap();
                versions.read(&reader.lock());
            })
        };
        versions.replace_first(&domain);
        reader.join().unwrap();
    });
}

/// A value that readers look at, and whose drop frees it.
struct Value(UnsafeCell<u32>);

// SAFETY: loom checks every access to the cell.
unsafe impl Sync for Value {}

impl Value {
    fn boxed() -> RcuBox<Self> {
        RcuBox::try_new(Self(UnsafeCell::new(1))).unwrap()
    }

    fn read(&self) {
        // SAFETY: loom checks it.
        self.0.with(|cell| assert_eq!(unsafe { *cell }, 1, "read after free"));
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        // SAFETY: loom checks it.
        self.0.with_mut(|cell| unsafe { *cell = 0 });
    }
}

#[test]
fn what_is_dropped_at_once_for_want_of_readers_is_found_by_none_that_comes() {
    for anonymous in [false, true] {
        check(move || {
            let domain = domain();
            let pointer = Arc::new(Rcu::new(&domain, Value::boxed()));
            let reader = {
                let (domain, pointer) = (domain.clone(), Arc::clone(&pointer));
                thread::spawn(move || {
                    if anonymous {
                        pointer.load(&domain.read_lock()).read();
                    } else {
                        let reader = domain.reader().unwrap();
                        pointer.load(&reader.lock()).read();
                    }
                })
            };
            pointer.replace(Value::boxed()).defer();
            reader.join().unwrap();
            domain.barrier();
        });
    }
}

#[test]
fn a_nested_section_protects_until_its_outermost_end() {
    check(|| {
        let (domain, versions) = (domain(), Versions::new());
        let reader = {
            let (reader, versions) = (domain.reader().unwrap(), Arc::clone(&versions));
            thread::spawn(move || {
                let outer = reader.lock();
                let inner = reader.lock();
                versions.read(&inner);
                drop(inner);
                versions.read(&outer);
            })
        };
        versions.replace_first(&domain);
        reader.join().unwrap();
    });
}

#[test]
fn a_reader_that_enters_again_and_again_is_waited_for_once() {
    check(|| {
        let (domain, versions) = (domain(), Versions::new());
        let reader = {
            let (reader, versions) = (domain.reader().unwrap(), Arc::clone(&versions));
            thread::spawn(move || {
                for _ in 0..2 {
                    versions.read(&reader.lock());
                }
            })
        };
        versions.replace_first(&domain);
        reader.join().unwrap();
    });
}

#[test]
fn of_two_synchronisers_neither_joins_a_grace_period_that_has_sampled() {
    check(|| {
        let (domain, versions) = (domain(), Versions::new());
        let reader = read_in_thread(&versions, domain.reader().unwrap());
        let other = {
            let domain = domain.clone();
            thread::spawn(move || domain.synchronize())
        };
        versions.publish_second();
        domain.synchronize();
        versions.free_first();
        reader.join().unwrap();
        other.join().unwrap();
    });
}

#[test]
fn a_synchroniser_overtakes_a_lazy_grace_period_in_flight() {
    check(|| {
        let (domain, versions) = (domain(), Versions::new());
        let reader = read_in_thread(&versions, domain.reader().unwrap());
        let lazy = {
            let domain = domain.clone();
            thread::spawn(move || domain.start_poll())
        };
        versions.publish_second();
        domain.call(Versions::defer_free(&versions));
        domain.synchronize();
        reader.join().unwrap();
        let cookie = lazy.join().unwrap();
        assert!(domain.poll(cookie));
        domain.barrier();
        assert_eq!(domain.stats().callbacks, 1);
    });
}

#[test]
fn a_deferred_callback_waits_for_the_readers_of_its_time() {
    check(|| {
        let (domain, versions) = (domain(), Versions::new());
        let reader = read_in_thread(&versions, domain.reader().unwrap());
        versions.publish_second();
        domain.call(Versions::defer_free(&versions));
        domain.tick();
        domain.tick();
        reader.join().unwrap();
        domain.barrier();
        assert_eq!(domain.stats().callbacks, 1);
    });
}

#[test]
fn a_barrier_waits_for_callbacks_that_another_thread_is_running() {
    check(|| {
        let (domain, versions) = (domain(), Versions::new());
        versions.publish_second();
        domain.call(Versions::defer_free(&versions));
        let ticker = {
            let domain = domain.clone();
            thread::spawn(move || {
                domain.tick();
            })
        };
        domain.barrier();
        // SAFETY: loom checks it.
        versions.cells[0].with(|cell| assert_eq!(unsafe { *cell }, 0));
        ticker.join().unwrap();
    });
}

#[test]
fn two_threads_that_defer_lose_no_callback() {
    check(|| {
        let domain = domain();
        let ran = Arc::new(AtomicUsize::new(0));
        let defer = |domain: &Srcu, ran: &Arc<AtomicUsize>| {
            let ran = Arc::clone(ran);
            domain.call(
                Callback::try_new(move || {
                    ran.fetch_add(1, Ordering::Relaxed);
                })
                .unwrap(),
            );
        };
        let other = {
            let (domain, ran) = (domain.clone(), Arc::clone(&ran));
            thread::spawn(move || {
                defer(&domain, &ran);
                domain.synchronize();
            })
        };
        defer(&domain, &ran);
        domain.synchronize();
        other.join().unwrap();
        assert_eq!(ran.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn at_the_bound_a_call_waits_and_frees_nothing_early() {
    check(|| {
        let limits = Limits { soft_count: 0, hard_count: 0, ..Limits::default() };
        let (domain, versions) = (with(Config { limits, ..Config::default() }), Versions::new());
        let reader = read_in_thread(&versions, domain.reader().unwrap());
        versions.publish_second();
        domain.call(Versions::defer_free(&versions));
        assert_eq!(domain.stats().callbacks, 1);
        reader.join().unwrap();
    });
}

#[test]
fn a_domain_that_defers_while_its_worker_lets_go_of_it_is_seen_again() {
    check(|| {
        let worker = std::sync::Arc::new(Worker::new(std::sync::Arc::new(Model::new())));
        let domain =
            with(Config { worker: Some(std::sync::Arc::clone(&worker)), ..Config::default() });
        domain.call(Callback::try_new(|| ()).unwrap());
        let turner = {
            let worker = std::sync::Arc::clone(&worker);
            thread::spawn(move || {
                worker.turn();
            })
        };
        domain.call(Callback::try_new(|| ()).unwrap());
        turner.join().unwrap();
        worker.turn();
        worker.turn();
        assert_eq!(domain.stats().callbacks, 2);
    });
}

#[test]
fn a_worker_going_to_sleep_is_woken_for_what_arrives() {
    check(|| {
        let worker = std::sync::Arc::new(Worker::new(std::sync::Arc::new(Model::new())));
        let domain =
            with(Config { worker: Some(std::sync::Arc::clone(&worker)), ..Config::default() });
        let ran = Arc::new(AtomicUsize::new(0));
        let runner = {
            let worker = std::sync::Arc::clone(&worker);
            thread::spawn(move || worker.run())
        };
        let stop = std::sync::Arc::clone(&worker);
        let ran_there = Arc::clone(&ran);
        domain.call(
            Callback::try_new(move || {
                ran_there.fetch_add(1, Ordering::Relaxed);
                stop.stop();
            })
            .unwrap(),
        );
        runner.join().unwrap();
        assert_eq!(ran.load(Ordering::Relaxed), 1);
    });
}
