//! What is under way when the platform panics.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use mayfly_platform::ReaderBarrier::{Asymmetric, Fenced};
use mayfly_srcu::{Callback, Config, Limits, Pace, RcuBox, Retired, Srcu, WorkerThread};

use crate::case::Case;

const LINUX: Pace = Pace::Linux { hz: 1000 };

pub(crate) fn while_a_domain_is_built(case: &Case) {
    let worker = WorkerThread::spawn(case.platform(Asymmetric)).unwrap();
    let worker = Some(Arc::clone(worker.worker()));
    let config = Config { pace: LINUX, worker, ..Config::default() };
    case.armed(|| drop(Srcu::try_new(case.platform(Asymmetric), config)));
}

pub(crate) fn while_a_value_waits_for_its_readers(case: &Case) {
    let domain = Srcu::try_new(case.platform(Asymmetric), Config::default()).unwrap();
    case.with_a_reader_inside(&domain, |retired| drop(retired.synchronize()));
}

pub(crate) fn while_a_value_waits_on_a_fenced_domain(case: &Case) {
    let domain = Srcu::try_new(case.platform(Fenced), Config::default()).unwrap();
    case.with_a_reader_inside(&domain, |retired| drop(retired.synchronize()));
}

pub(crate) fn while_a_callback_waits_at_the_hard_bound(case: &Case) {
    let limits = Limits { hard_count: 0, ..Limits::default() };
    let config = Config { limits, ..Config::default() };
    let domain = Srcu::try_new(case.platform(Asymmetric), config).unwrap();
    case.with_a_reader_inside(&domain, Retired::defer);
}

pub(crate) fn while_a_value_is_deferred(case: &Case) {
    let (domain, _worker) = worked(case, Pace::Urgent);
    case.with_a_reader_inside(&domain, Retired::defer);
}

pub(crate) fn while_a_value_is_deferred_in_haste(case: &Case) {
    let (domain, _worker) = worked(case, Pace::Urgent);
    case.with_a_reader_inside(&domain, Retired::defer_expedited);
}

pub(crate) fn while_a_worker_is_called(case: &Case) {
    let (domain, _worker) = worked(case, Pace::Urgent);
    // Until one finds the worker asleep.
    case.armed(|| {
        for _ in 0..1000 {
            domain.call_expedited(Callback::try_new(|| ()).unwrap());
            thread::sleep(Duration::from_millis(5));
        }
    });
}

pub(crate) fn while_a_worker_sees_to_a_value(case: &Case) {
    let (domain, _worker) = worked(case, Pace::Urgent);
    case.with_a_reader_inside(&domain, |retired| {
        retired.defer();
        thread::sleep(Duration::from_secs(1));
    });
}

pub(crate) fn while_a_waiter_is_on_the_stack(case: &Case) {
    let (domain, _worker) = worked(case, LINUX);
    case.with_a_reader_inside(&domain, |retired| drop(retired.synchronize()));
}

pub(crate) fn while_a_worker_sees_to_a_waiter(case: &Case) {
    while_a_waiter_is_on_the_stack(case);
}

pub(crate) fn while_a_worker_wakes_a_waiter(case: &Case) {
    let (domain, _worker) = worked(case, LINUX);
    case.armed(|| domain.synchronize());
}

pub(crate) fn while_a_reader_leaves_that_is_waited_for(case: &Case) {
    let domain = Srcu::try_new(case.platform(Asymmetric), Config::default()).unwrap();
    let (reader, value) = (domain.reader().unwrap(), RcuBox::try_new(0_u8).unwrap());
    let pointer = mayfly_srcu::Rcu::new(&domain, value);
    let section = reader.lock();
    let waiter = {
        let retired = pointer.replace(RcuBox::try_new(1_u8).unwrap());
        thread::spawn(move || retired.synchronize())
    };
    while domain.stats().sleeps == 0 {
        thread::yield_now();
    }
    case.armed(|| drop(section));
    drop(waiter);
}

/// A domain with a worker's thread.
fn worked(case: &Case, pace: Pace) -> (Srcu, WorkerThread) {
    let worker = WorkerThread::spawn(case.platform(Asymmetric)).unwrap();
    let config = Config { pace, worker: Some(Arc::clone(worker.worker())), ..Config::default() };
    (Srcu::try_new(case.platform(Asymmetric), config).unwrap(), worker)
}
