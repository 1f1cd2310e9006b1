//! A domain paced as Linux that cannot count what it is given does not free it under its readers.

#![cfg(not(any(mayfly_loom, mayfly_shuttle)))]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mayfly_platform::Host;
use mayfly_srcu::{Config, Pace, Rcu, RcuBox, Retired, Srcu, Worker};

struct Noted(Arc<AtomicBool>);

impl Drop for Noted {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn what_is_too_large_to_be_counted_is_not_freed_while_it_is_read() {
    let defers: [fn(Retired<Noted>); 3] = [
        |retired| drop(retired),
        |retired| drop(retired.try_defer()),
        |retired| retired.defer_expedited(),
    ];
    for defer in defers {
        let worker = Some(Arc::new(Worker::new(Arc::new(Host::new()))));
        let config = Config { pace: Pace::Linux { hz: 1000 }, worker, ..Config::default() };
        let domain = Srcu::try_new(Arc::new(Host::new()), config).unwrap();
        let is_dropped = Arc::new(AtomicBool::new(false));
        let large = RcuBox::try_new_holding(Noted(Arc::clone(&is_dropped)), usize::MAX).unwrap();
        let value = Rcu::new(&domain, large);
        let section = domain.read_lock();
        let read = value.load(&section);
        let small = RcuBox::try_new(Noted(Arc::default())).unwrap();
        let old = value.replace(small);
        let deferred = catch_unwind(AssertUnwindSafe(|| defer(old)));
        assert!(deferred.is_err(), "more is deferred than counts");
        assert!(!is_dropped.load(Ordering::Relaxed), "it is freed under its reader");
        assert!(!read.0.load(Ordering::Relaxed));
        drop(section);
    }
}
