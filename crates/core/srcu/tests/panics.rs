//! A callback that panics costs what it had to do, and nothing else.

#![cfg(not(any(mayfly_loom, mayfly_shuttle)))]

mod patience;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use mayfly_platform::Host;
use mayfly_srcu::{Callback, Config, Pace, Srcu, Worker, WorkerThread};

fn domain(worker: Option<&Arc<Worker>>, pace: Pace) -> Srcu {
    let config = Config { worker: worker.cloned(), pace, ..Config::default() };
    Srcu::try_new(Arc::new(Host::new()), config).unwrap()
}

fn count_up(count: &Arc<AtomicUsize>) -> Callback {
    let count = Arc::clone(count);
    Callback::try_new(move || {
        count.fetch_add(1, Ordering::SeqCst);
    })
    .unwrap()
}

fn panicking() -> Callback {
    Callback::try_new(|| panic!("as it should")).unwrap()
}

/// Defers a callback that panics between two that count.
fn defer_around_a_panic(domain: &Srcu, ran: &Arc<AtomicUsize>) {
    for callback in [count_up(ran), panicking(), count_up(ran)] {
        domain.call(callback);
    }
}

fn panics(work: impl FnOnce()) {
    assert!(catch_unwind(AssertUnwindSafe(work)).is_err());
}

#[test]
fn those_behind_it_run_and_none_stays_counted() {
    let domain = domain(None, Pace::Urgent);
    for run in [Srcu::synchronize, Srcu::barrier] {
        let ran = Arc::new(AtomicUsize::new(0));
        defer_around_a_panic(&domain, &ran);
        panics(|| run(&domain));
        assert_eq!(ran.load(Ordering::SeqCst), 2);
        assert_eq!((domain.stats().deferred, domain.stats().deferred_bytes), (0, 0));
    }
}

#[test]
fn those_that_the_end_of_the_domain_runs_all_run() {
    let domain = domain(None, Pace::Urgent);
    let ran = Arc::new(AtomicUsize::new(0));
    // One batch that a grace period has, and what came later.
    defer_around_a_panic(&domain, &ran);
    let _ = domain.start_poll();
    domain.call(count_up(&ran));
    panics(|| drop(domain));
    assert_eq!(ran.load(Ordering::SeqCst), 3);
}

#[test]
fn other_domains_are_looked_at_in_the_workers_next_turn() {
    let worker = Arc::new(Worker::new(Arc::new(Host::new())));
    let domains = [(); 3].map(|()| domain(Some(&worker), Pace::Urgent));
    let ran = Arc::new(AtomicUsize::new(0));
    for domain in &domains {
        defer_around_a_panic(domain, &ran);
    }
    for _ in &domains {
        panics(|| {
            worker.turn();
        });
    }
    worker.turn();
    assert_eq!(ran.load(Ordering::SeqCst), 6);
    // None is left on the list, and each comes back to it.
    for domain in &domains {
        domain.call(count_up(&ran));
    }
    worker.turn();
    assert_eq!(ran.load(Ordering::SeqCst), 9);
    drop(domains);
    assert_eq!(Arc::strong_count(&worker), 1);
}

#[test]
fn a_workers_thread_goes_on() {
    for pace in [Pace::Urgent, Pace::Linux { hz: 1000 }] {
        let worker = WorkerThread::spawn(Arc::new(Host::new())).unwrap();
        let domain = domain(Some(worker.worker()), pace);
        let ran = Arc::new(AtomicUsize::new(0));
        for _ in 0..2 {
            defer_around_a_panic(&domain, &ran);
            let (done, wait) = mpsc::channel();
            domain.call(Callback::try_new(move || done.send(()).unwrap()).unwrap());
            patience::received(&wait).expect("the worker goes on");
        }
        domain.barrier();
        assert_eq!((ran.load(Ordering::SeqCst), domain.stats().deferred), (4, 0));
    }
}
