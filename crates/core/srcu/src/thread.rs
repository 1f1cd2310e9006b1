//! Threads for a [`Worker`].

use alloc::sync::Arc;
use core::num::NonZeroUsize;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{self, Builder, JoinHandle};
use std::vec::Vec;

use mayfly_platform::Platform;

use crate::Worker;

/// A thread, or several, that turn a [`Worker`] until this is dropped.
#[derive(Debug)]
pub struct WorkerThread {
    worker: Arc<Worker>,
    threads: Vec<JoinHandle<()>>,
}

impl WorkerThread {
    /// Starts a thread named `srcu-worker`.
    ///
    /// # Errors
    ///
    /// Where the system has no thread to give.
    pub fn spawn(platform: Arc<dyn Platform>) -> io::Result<Self> {
        Self::spawn_several(platform, NonZeroUsize::MIN)
    }

    /// Starts `count` threads named `srcu-worker` for one worker, so that `count - 1` domains whose callbacks block
    /// delay no other.
    ///
    /// # Errors
    ///
    /// Where the system has not so many threads to give; those that it gave have ended.
    pub fn spawn_several(platform: Arc<dyn Platform>, count: NonZeroUsize) -> io::Result<Self> {
        Self::spawn_with(platform, count, || ())
    }

    /// As [`WorkerThread::spawn_several`]; each of the threads calls `start` before anything else, where it can say which
    /// it is, or how it wants to be scheduled. One whose `start` panics ends there.
    ///
    /// # Errors
    ///
    /// As [`WorkerThread::spawn_several`].
    pub fn spawn_with(
        platform: Arc<dyn Platform>,
        count: NonZeroUsize,
        start: impl Fn() + Clone + Send + 'static,
    ) -> io::Result<Self> {
        let mut this = Self { worker: Arc::new(Worker::new(platform)), threads: Vec::new() };
        for _ in 0..count.get() {
            let (turned, start) = (Arc::clone(&this.worker), start.clone());
            let run = move || {
                start();
                // A panic of a callback's has been reported by its own message, and others are not to wait for this one.
                while catch_unwind(AssertUnwindSafe(|| turned.run())).is_err() {}
            };
            this.threads.push(Builder::new().name("srcu-worker".into()).spawn(run)?);
        }
        Ok(this)
    }

    /// The worker, for [`Config::worker`](crate::Config).
    pub fn worker(&self) -> &Arc<Worker> {
        &self.worker
    }
}

impl Drop for WorkerThread {
    fn drop(&mut self) {
        self.worker.stop();
        let here = thread::current().id();
        // A callback may have the last of this: the thread that runs it ends when it has run.
        for thread in self.threads.drain(..).filter(|thread| thread.thread().id() != here) {
            // It has nothing to return.
            let _ = thread.join();
        }
    }
}
