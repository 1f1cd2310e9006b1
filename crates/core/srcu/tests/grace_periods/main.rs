//! What the domain promises, on real threads.

#![cfg(not(any(mayfly_loom, mayfly_shuttle)))]

mod callbacks;
#[path = "../patience/mod.rs"]
mod patience;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use mayfly_platform::Host;
use mayfly_srcu::{BuildError, Callback, Config, Pace, Rcu, RcuBox, Srcu, WorkerThread};

fn domain() -> Srcu {
    Srcu::try_new(Arc::new(Host::new()), Config::default()).unwrap()
}

fn every_kind_of_domain() -> Vec<(&'static str, Srcu, Option<WorkerThread>)> {
    let worker = || WorkerThread::spawn(Arc::new(Host::new())).unwrap();
    let mut kinds = vec![
        ("asymmetric", domain(), None),
        ("fenced", Srcu::try_new(Arc::new(Host::fenced()), Config::default()).unwrap(), None),
    ];
    for (name, pace) in [("worker", Pace::Urgent), ("linux", Pace::Linux { hz: 1000 })] {
        let worker = worker();
        let config =
            Config { worker: Some(Arc::clone(worker.worker())), pace, ..Config::default() };
        kinds.push((name, Srcu::try_new(Arc::new(Host::new()), config).unwrap(), Some(worker)));
    }
    kinds
}

fn count_up(count: &Arc<AtomicUsize>) -> Callback {
    let count = Arc::clone(count);
    Callback::try_new(move || {
        count.fetch_add(1, Ordering::SeqCst);
    })
    .unwrap()
}

#[test]
fn with_no_reader_inside_nobody_sleeps() {
    let domain = domain();
    let readers: Vec<_> = (0..8).map(|_| domain.reader().unwrap()).collect();
    drop(readers[3].lock());
    drop(domain.read_lock());
    domain.synchronize();
    domain.synchronize_expedited();
    let stats = domain.stats();
    assert_eq!((stats.grace_periods, stats.sleeps), (2, 0));
}

#[test]
fn without_registered_readers_no_barrier_is_passed_on_behalf_of_others() {
    let domain = domain();
    drop(domain.read_lock());
    drop(domain.reader().unwrap());
    domain.synchronize();
    assert_eq!(domain.stats().heavy_barriers, 0);
}

#[test]
fn a_synchroniser_waits_for_a_reader_that_entered_before() {
    for (name, domain, _worker) in every_kind_of_domain() {
        for anonymous in [false, true] {
            let reader = domain.reader().unwrap();
            let left = Arc::new(AtomicBool::new(false));
            let inside = Arc::new(Barrier::new(2));
            let synchroniser = {
                let (domain, left, inside) =
                    (domain.clone(), Arc::clone(&left), Arc::clone(&inside));
                thread::spawn(move || {
                    inside.wait();
                    domain.synchronize_expedited();
                    assert!(left.load(Ordering::SeqCst), "{name}: the reader was still inside");
                })
            };
            let section = (!anonymous).then(|| reader.lock());
            let shared = anonymous.then(|| domain.read_lock());
            inside.wait();
            thread::sleep(Duration::from_millis(5));
            left.store(true, Ordering::SeqCst);
            drop((section, shared));
            synchroniser.join().unwrap();
        }
    }
}

#[test]
fn a_cookie_starts_nothing_and_polling_it_waits_for_the_readers_of_then() {
    let domain = domain();
    let reader = domain.reader().unwrap();
    let section = reader.lock();
    let cookie = domain.cookie();
    assert_eq!(domain.stats().grace_periods, 0);
    assert!(!domain.poll(cookie));
    assert_eq!(domain.stats().grace_periods, 1);
    drop(section);
    let later = reader.lock();
    assert!(domain.poll(cookie));
    drop(later);
    assert_eq!(domain.stats().grace_periods, 1);
}

#[test]
fn a_synchroniser_does_not_wait_for_a_reader_that_entered_after_it_sampled() {
    let domain = domain();
    let reader = domain.reader().unwrap();
    let cookie = domain.start_poll();
    let section = reader.lock();
    assert!(domain.poll(cookie));
    domain.cond_synchronize(cookie);
    drop(section);
}

#[test]
fn a_nested_section_ends_with_its_outermost_guard_in_any_order() {
    let domain = domain();
    let reader = domain.reader().unwrap();
    let outer = reader.lock();
    let inner = reader.lock();
    let cookie = domain.start_poll();
    drop(outer);
    assert!(!domain.poll(cookie));
    drop(inner);
    assert!(domain.poll(cookie));
}

#[test]
fn leaving_and_entering_again_ends_the_section_that_was_waited_for() {
    let domain = domain();
    let reader = domain.reader().unwrap();
    let first = reader.lock();
    let cookie = domain.start_poll();
    assert!(!domain.poll(cookie));
    drop(first);
    let _second = reader.lock();
    assert!(domain.poll(cookie));
}

#[test]
fn anonymous_sections_that_follow_each_other_without_a_gap_hold_up_no_grace_period() {
    let domain = domain();
    let mut section = domain.read_lock();
    let cookie = domain.start_poll();
    assert!(!domain.poll(cookie));
    for _ in 0..3 {
        let next = domain.read_lock();
        drop(std::mem::replace(&mut section, next));
    }
    assert!(domain.poll(cookie));
}

#[test]
fn a_domain_goes_with_its_last_handle_though_its_worker_is_never_turned() {
    let worker = Arc::new(mayfly_srcu::Worker::new(Arc::new(Host::new())));
    let config = || Config { worker: Some(Arc::clone(&worker)), ..Config::default() };
    let [first, second, third] =
        [(); 3].map(|()| Srcu::try_new(Arc::new(Host::new()), config()).unwrap());
    let ran = Arc::new(AtomicUsize::new(0));
    for domain in [&first, &second, &third] {
        domain.call(count_up(&ran));
    }
    // One that the worker has on its list, between others; one that it has not looked at yet.
    let reader = second.reader().unwrap();
    let section = reader.lock();
    worker.turn();
    assert_eq!(ran.load(Ordering::SeqCst), 2, "a reader is inside of the second");
    first.call(count_up(&ran));
    for (domain, ran_by_then) in [(first, 3), (third, 3)] {
        let owners = Arc::strong_count(&worker);
        drop(domain);
        assert_eq!(ran.load(Ordering::SeqCst), ran_by_then);
        assert_eq!(Arc::strong_count(&worker), owners - 1, "nothing is left of it");
    }
    drop(section);
    drop(reader);
    drop(second);
    assert_eq!(ran.load(Ordering::SeqCst), 4);
    assert_eq!(Arc::strong_count(&worker), 1);
    assert_eq!(worker.turn(), mayfly_platform::time::Instant::NEVER);
}

#[test]
fn a_section_that_was_leaked_ends_with_its_reader() {
    let domain = domain();
    for _ in 0..1000 {
        let reader = domain.reader().unwrap();
        std::mem::forget(reader.lock());
    }
    domain.synchronize();
}

#[test]
fn concurrent_updates_are_each_made_from_the_one_before() {
    let domain = domain();
    let sum = Arc::new(Rcu::new(&domain, RcuBox::try_new(0_u64).unwrap()));
    let adders: Vec<_> = (0..4)
        .map(|_| {
            let sum = Arc::clone(&sum);
            thread::spawn(move || {
                for _ in 0..1000 {
                    sum.update(|old| RcuBox::try_new(old + 1)).unwrap().defer();
                }
            })
        })
        .collect();
    for adder in adders {
        adder.join().unwrap();
    }
    assert_eq!(*sum.load(&domain.read_lock()), 4000);
}

#[test]
#[should_panic(expected = "another domain")]
fn a_section_of_another_domain_loads_nothing() {
    let (ours, theirs) = (domain(), domain());
    let value = Rcu::new(&ours, RcuBox::try_new(0_u8).unwrap());
    let section = theirs.read_lock();
    value.load(&section);
}

#[test]
fn a_domain_paced_as_linux_says_what_it_lacks() {
    let build = |pace, worker| {
        Srcu::try_new(Arc::new(Host::new()), Config { pace, worker, ..Config::default() }).err()
    };
    assert_eq!(build(Pace::Linux { hz: 250 }, None), Some(BuildError::NoWorker));
    assert_eq!(build(Pace::Linux { hz: 0 }, None), Some(BuildError::NoJiffies));
}
