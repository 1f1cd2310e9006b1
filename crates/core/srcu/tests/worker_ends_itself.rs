//! A callback may have the last of what owns the thread that runs it.

#![cfg(not(any(mayfly_loom, mayfly_shuttle)))]

mod patience;

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};

use mayfly_platform::Host;
use mayfly_srcu::{Callback, Config, Srcu, WorkerThread};

#[test]
fn a_callback_that_drops_the_thread_it_runs_on_ends_it() {
    for threads in 1..=3 {
        let count = NonZeroUsize::new(threads).unwrap();
        let thread = WorkerThread::spawn_several(Arc::new(Host::new()), count).unwrap();
        let worker = Some(Arc::clone(thread.worker()));
        let config = Config { run_inline: 0, worker, ..Config::default() };
        let domain = Srcu::try_new(Arc::new(Host::new()), config).unwrap();
        let (says, said) = mpsc::channel();
        let work = move || {
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(thread)));
            says.send(dropped.is_ok()).unwrap();
        };
        domain.call(Callback::try_new(work).unwrap());
        assert_eq!(patience::received(&said), Some(true));
    }
}
