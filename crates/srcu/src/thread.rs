//! A thread for a [`Worker`].

use alloc::sync::Arc;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{Builder, JoinHandle};

use mayfly_platform::Platform;

use crate::Worker;

/// A thread that turns a [`Worker`] until this is dropped.
#[derive(Debug)]
pub struct WorkerThread {
    worker: Arc<Worker>,
    thread: Option<JoinHandle<()>>,
}

impl WorkerThread {
    /// Starts a thread named `srcu-worker`.
    ///
    /// # Errors
    ///
    /// Where the system has no thread to give.
    pub fn spawn(platform: Arc<dyn Platform>) -> io::Result<Self> {
        let worker = Arc::new(Worker::new(platform));
        let turned = Arc::clone(&worker);
        // A panic of a callback's has been reported by its own message, and others are not to wait for this one.
        let run = move || while catch_unwind(AssertUnwindSafe(|| turned.run())).is_err() {};
        let thread = Builder::new().name("srcu-worker".into()).spawn(run)?;
        Ok(Self { worker, thread: Some(thread) })
    }

    /// The worker, for [`Config::worker`](crate::Config).
    pub fn worker(&self) -> &Arc<Worker> {
        &self.worker
    }
}

impl Drop for WorkerThread {
    fn drop(&mut self) {
        self.worker.stop();
        if let Some(thread) = self.thread.take() {
            // It has nothing to return.
            let _ = thread.join();
        }
    }
}
