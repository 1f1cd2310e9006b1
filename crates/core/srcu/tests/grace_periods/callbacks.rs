//! What the domain promises of callbacks.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use mayfly_platform::Host;
use mayfly_srcu::{Callback, Config, Limits, Pace, Rcu, RcuBox, Srcu, WorkerThread};

use super::{count_up, domain, every_kind_of_domain, patience};

#[test]
fn a_later_grace_period_completes_everything_deferred_before_it() {
    let domain = domain();
    let _reader = domain.reader().unwrap();
    let ran = Arc::new(AtomicUsize::new(0));
    for _ in 0..10 {
        domain.call(count_up(&ran));
    }
    assert_eq!(ran.load(Ordering::SeqCst), 0);
    domain.synchronize_expedited();
    assert_eq!(ran.load(Ordering::SeqCst), 10);
    assert_eq!(domain.stats().grace_periods, 1);
}

#[test]
fn a_retired_value_is_dropped_at_once_where_there_is_no_reader_and_deferred_where_there_is() {
    let domain = domain();
    let dropped = Arc::new(());
    let value = || RcuBox::try_new(Arc::clone(&dropped)).unwrap();
    let pointer = Rcu::new(&domain, value());
    pointer.replace(value()).defer();
    assert_eq!((Arc::strong_count(&dropped), domain.stats().grace_periods), (2, 0));
    let section = domain.read_lock();
    pointer.replace(value()).defer();
    drop(section);
    let _reader = domain.reader().unwrap();
    pointer.replace(value()).defer();
    assert_eq!((Arc::strong_count(&dropped), domain.stats().deferred), (4, 2));
    domain.synchronize();
    assert_eq!((Arc::strong_count(&dropped), domain.stats().deferred), (2, 0));
}

#[test]
fn a_deferred_grace_period_in_flight_does_not_delay_a_synchroniser() {
    let domain = domain();
    let (parked, free) = (domain.reader().unwrap(), domain.reader().unwrap());
    let ran = Arc::new(AtomicUsize::new(0));
    let held = parked.lock();
    domain.call(count_up(&ran));
    assert!(domain.tick(), "the parked reader holds up the grace period of the deferred callback");
    drop(held);
    // That grace period is under way and nobody has looked at it since. The synchroniser starts its own.
    domain.synchronize();
    assert_eq!(ran.load(Ordering::SeqCst), 1);
    assert_eq!(domain.stats().sleeps, 0);
    drop(free);
}

#[test]
fn a_callback_does_not_run_before_its_readers_have_left() {
    for (name, domain, _worker) in every_kind_of_domain() {
        let reader = domain.reader().unwrap();
        let ran = Arc::new(AtomicUsize::new(0));
        let section = reader.lock();
        domain.call(count_up(&ran));
        domain.call_expedited(count_up(&ran));
        domain.tick();
        thread::sleep(Duration::from_millis(30));
        assert_eq!(ran.load(Ordering::SeqCst), 0, "{name}");
        drop(section);
        domain.barrier();
        assert_eq!(ran.load(Ordering::SeqCst), 2, "{name}");
    }
}

#[test]
fn a_worker_runs_what_nobody_waits_for() {
    let worker = WorkerThread::spawn(Arc::new(Host::new())).unwrap();
    for pace in [Pace::Urgent, Pace::Linux { hz: 1000 }] {
        let config =
            Config { worker: Some(Arc::clone(worker.worker())), pace, ..Config::default() };
        let domain = Srcu::try_new(Arc::new(Host::new()), config).unwrap();
        let (done, wait) = mpsc::channel();
        for _ in 0..3 {
            let done = done.clone();
            domain.call(Callback::try_new(move || done.send(()).unwrap()).unwrap());
        }
        for _ in 0..3 {
            patience::received(&wait).unwrap();
        }
    }
}

#[test]
fn an_expedited_callback_runs_when_the_reader_leaves_though_nobody_waits() {
    let worker = WorkerThread::spawn(Arc::new(Host::new())).unwrap();
    let config = Config { worker: Some(Arc::clone(worker.worker())), ..Config::default() };
    let domain = Srcu::try_new(Arc::new(Host::new()), config).unwrap();
    let reader = domain.reader().unwrap();
    let (done, wait) = mpsc::channel();
    let section = reader.lock();
    domain.call_expedited(Callback::try_new(move || done.send(()).unwrap()).unwrap());
    assert!(wait.try_recv().is_err());
    drop(section);
    patience::received(&wait).unwrap();
}

#[test]
fn dropping_the_last_handle_runs_everything() {
    for (name, domain, worker) in every_kind_of_domain() {
        let ran = Arc::new(AtomicUsize::new(0));
        let reader = domain.reader().unwrap();
        drop(reader.lock());
        for _ in 0..5 {
            domain.call(count_up(&ran));
        }
        drop(reader);
        drop(domain);
        drop(worker);
        assert_eq!(ran.load(Ordering::SeqCst), 5, "{name}");
    }
}

#[test]
fn at_the_hard_bound_a_call_waits_and_a_try_call_gives_the_callback_back() {
    let limits = Limits { soft_count: 4, hard_count: 8, ..Limits::default() };
    let domain =
        Srcu::try_new(Arc::new(Host::new()), Config { limits, ..Config::default() }).unwrap();
    let reader = domain.reader().unwrap();
    let ran = Arc::new(AtomicUsize::new(0));
    let section = reader.lock();
    for _ in 0..8 {
        domain.call(count_up(&ran));
    }
    let refused = domain.try_call(count_up(&ran)).unwrap_err();
    assert_eq!(domain.stats().deferred, 8);
    drop(section);
    domain.call(refused);
    assert_eq!(ran.load(Ordering::SeqCst), 9);
    let stats = domain.stats();
    assert_eq!((stats.deferred, stats.peak_deferred, stats.calls_at_bound), (0, 8, 2));
}

#[test]
fn bytes_are_bounded_like_counts() {
    let limits = Limits { hard_bytes: 10_000, ..Limits::default() };
    let domain =
        Srcu::try_new(Arc::new(Host::new()), Config { limits, ..Config::default() }).unwrap();
    let callback = |bytes| RcuBox::try_new_holding(0_u8, bytes).unwrap().into_callback();
    domain.try_call(callback(9_000)).unwrap();
    assert!(domain.try_call(callback(1_000)).is_err());
    assert!(domain.stats().peak_deferred_bytes <= 10_000);
    domain.call(callback(100_000));
    assert_eq!(domain.stats().deferred_bytes, 0);
}

#[test]
fn more_bytes_than_can_be_counted_are_refused() {
    let limits = Limits { hard_bytes: usize::MAX, ..Limits::default() };
    for limits in [Limits::default(), limits] {
        let config = Config { limits, ..Config::default() };
        let domain = Srcu::try_new(Arc::new(Host::new()), config).unwrap();
        let callback = |bytes| RcuBox::try_new_holding(0_u8, bytes).unwrap().into_callback();
        domain.try_call(callback(1_000)).unwrap();
        let held = domain.stats().deferred_bytes;
        assert!(domain.try_call(callback(usize::MAX)).is_err());
        assert!(domain.try_call(callback(usize::MAX - held / 2)).is_err());
        let stats = domain.stats();
        assert_eq!((stats.deferred, stats.deferred_bytes, stats.calls_at_bound), (1, held, 2));
    }
}

#[test]
fn a_callback_that_is_dropped_is_not_run() {
    let ran = Arc::new(AtomicUsize::new(0));
    drop(count_up(&ran));
    assert_eq!((ran.load(Ordering::SeqCst), Arc::strong_count(&ran)), (0, 1));
}

#[test]
fn callbacks_run_in_the_order_they_were_deferred_in() {
    let domain = domain();
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    for i in 0..20 {
        let order = Arc::clone(&order);
        domain.call(Callback::try_new(move || order.lock().unwrap().push(i)).unwrap());
        if i == 7 {
            let _ = domain.start_poll();
        }
    }
    domain.barrier();
    assert_eq!(*order.lock().unwrap(), (0..20).collect::<Vec<_>>());
}

#[test]
fn try_call_inside_a_section_runs_no_callback_there() {
    let limits = Limits { soft_count: 1, ..Limits::default() };
    let domain =
        Srcu::try_new(Arc::new(Host::new()), Config { limits, ..Config::default() }).unwrap();
    let ran = Arc::new(AtomicUsize::new(0));
    let reader = domain.reader().unwrap();
    for _ in 0..63 {
        domain.try_call(count_up(&ran)).unwrap();
    }
    // All of it is ready, and nobody has run it.
    let cookie = domain.start_poll();
    assert!(domain.poll(cookie));
    let section = reader.lock();
    for _ in 0..100 {
        domain.try_call(count_up(&ran)).unwrap();
    }
    assert_eq!(ran.load(Ordering::SeqCst), 0);
    drop(section);
    domain.call(count_up(&ran));
    domain.barrier();
    assert_eq!(ran.load(Ordering::SeqCst), 164);
}

#[test]
fn a_callback_may_defer() {
    let domain = domain();
    let ran = Arc::new(AtomicUsize::new(0));
    let callback = {
        let (domain, ran) = (domain.clone(), Arc::clone(&ran));
        Callback::try_new(move || domain.try_call(count_up(&ran)).unwrap()).unwrap()
    };
    domain.call(callback);
    domain.barrier();
    domain.barrier();
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}
