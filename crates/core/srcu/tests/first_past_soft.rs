//! What is deferred first, and is past the soft bound at once, runs as anything else does.

#![cfg(not(any(mayfly_loom, mayfly_shuttle)))]

mod patience;

use std::sync::{Arc, mpsc};

use mayfly_platform::Host;
use mayfly_srcu::{Callback, Config, Limits, RcuBox, Srcu, WorkerThread};

/// A value that says when it is dropped.
struct Said(mpsc::Sender<()>);

impl Drop for Said {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

fn runs_in_the_worker(limits: Limits, run_inline: usize, defer: fn(&Srcu, Callback)) {
    let thread = WorkerThread::spawn(Arc::new(Host::new())).unwrap();
    let worker = Some(Arc::clone(thread.worker()));
    let config = Config { limits, run_inline, worker, ..Config::default() };
    let domain = Srcu::try_new(Arc::new(Host::new()), config).unwrap();
    let (said, is_said) = mpsc::channel();
    let large = RcuBox::try_new_holding(Said(said), 2 << 20).unwrap();
    let section = domain.read_lock();
    defer(&domain, large.into_callback());
    drop(section);
    assert!(patience::received(&is_said).is_some(), "nobody runs it");
}

const DEFERS: [fn(&Srcu, Callback); 2] =
    [Srcu::call, |domain, callback| domain.try_call(callback).unwrap()];

#[test]
fn a_first_callback_of_more_bytes_than_the_soft_bound_runs_when_its_readers_have_left() {
    for defer in DEFERS {
        runs_in_the_worker(Limits::default(), 128, defer);
    }
}

#[test]
fn a_first_callback_where_the_soft_bound_is_none_runs_when_its_readers_have_left() {
    let limits = Limits { soft_count: 0, soft_bytes: usize::MAX, ..Limits::default() };
    for defer in DEFERS {
        runs_in_the_worker(limits, 1, defer);
    }
}
