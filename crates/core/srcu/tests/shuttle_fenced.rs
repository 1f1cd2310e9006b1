//! A fenced domain under shuttle: its readers may miss that they are awaited, and its waiters end all the same.

#![cfg(mayfly_shuttle)]

use std::sync::Arc as StdArc;

use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use shuttle::thread::{self, JoinHandle};

use mayfly_platform::{Model, check_schedules};
use mayfly_srcu::{Callback, Config, Srcu, Worker};

/// Two versions, the first of which is freed.
struct Versions {
    present: AtomicUsize,
    freed: AtomicBool,
}

fn versions() -> Arc<Versions> {
    Arc::new(Versions { present: AtomicUsize::new(0), freed: AtomicBool::new(false) })
}

impl Versions {
    fn read(&self) {
        if self.present.load(Ordering::Acquire) == 0 {
            for _ in 0..3 {
                assert!(!self.freed.load(Ordering::Relaxed), "read after free");
            }
        }
    }

    fn replace(&self) {
        self.present.store(1, Ordering::Release);
    }

    fn free(&self) {
        self.freed.store(true, Ordering::Relaxed);
    }
}

fn readers(domain: &Srcu, versions: &Arc<Versions>) -> [JoinHandle<()>; 3] {
    let reader = |work: Box<dyn Fn(&Versions) + Send>| {
        let versions = Arc::clone(versions);
        thread::spawn(move || (0..2).for_each(|_| work(&versions)))
    };
    let [first, second] = [(); 2].map(|()| domain.reader().unwrap());
    let anonymous = domain.clone();
    [
        reader(Box::new(move |versions| {
            let _section = first.lock();
            versions.read();
        })),
        reader(Box::new(move |versions| {
            let outer = second.lock();
            let _inner = second.lock();
            drop(outer);
            versions.read();
        })),
        reader(Box::new(move |versions| {
            let _section = anonymous.read_lock();
            versions.read();
        })),
    ]
}

fn fenced(model: StdArc<Model>, worker: Option<StdArc<Worker>>) -> Srcu {
    let config = Config { worker, ..Config::default() };
    let domain = Srcu::try_new(model, config).unwrap();
    assert!(domain.is_fenced());
    domain
}

#[test]
fn no_reader_sees_what_was_freed_and_every_waiter_ends() {
    check_schedules(10_000, 5_000, || {
        let (domain, versions) = (fenced(StdArc::new(Model::fenced()), None), versions());
        let readers = readers(&domain, &versions);
        let other = {
            let domain = domain.clone();
            thread::spawn(move || domain.synchronize())
        };
        versions.replace();
        domain.synchronize_expedited();
        versions.free();
        other.join().unwrap();
        for reader in readers {
            reader.join().unwrap();
        }
        assert_eq!(domain.stats().heavy_barriers, 0);
    });
}

#[test]
fn what_is_deferred_in_haste_is_run_by_the_worker_though_no_reader_says_that_it_left() {
    check_schedules(5_000, 2_500, || {
        // One clock for both.
        let model = StdArc::new(Model::fenced());
        let worker = StdArc::new(Worker::new(model.clone()));
        let turning = {
            let worker = StdArc::clone(&worker);
            thread::spawn(move || worker.run())
        };
        let (domain, versions) = (fenced(model, Some(StdArc::clone(&worker))), versions());
        let readers = readers(&domain, &versions);
        versions.replace();
        let freed = Arc::clone(&versions);
        domain.call_expedited(Callback::try_new(move || freed.free()).unwrap());
        while !versions.freed.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        for reader in readers {
            reader.join().unwrap();
        }
        worker.stop();
        turning.join().unwrap();
    });
}
