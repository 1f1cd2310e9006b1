//! The thread that runs what VMs defer.

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;

use mayfly_platform::Platform;
use mayfly_srcu::{Worker, WorkerThread};
use rustix::thread::Pid;

use crate::joined::told;

/// A thread that turns a [`Worker`] until this is dropped, and what the kernel calls it.
#[derive(Debug)]
pub struct MachineWorker {
    turning: WorkerThread,
    thread: Pid,
}

impl MachineWorker {
    /// Starts the thread, named `srcu-worker`.
    ///
    /// # Errors
    ///
    /// Where the host has no thread to give.
    pub fn spawn(platform: Arc<dyn Platform>) -> io::Result<Self> {
        let (tell, thread) = told();
        let turning = WorkerThread::spawn_with(platform, NonZeroUsize::MIN, tell)?;
        Ok(Self { turning, thread: *thread.wait() })
    }

    /// The worker, for [`mayfly_srcu::Config::worker`].
    pub fn worker(&self) -> &Arc<Worker> {
        self.turning.worker()
    }

    /// What the kernel calls the thread: gettid(2).
    pub fn thread(&self) -> Pid {
        self.thread
    }
}
