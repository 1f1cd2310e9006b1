//! The threads that run what VMs defer.

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::mpsc::channel;

use mayfly_platform::Platform;
use mayfly_srcu::{Worker, WorkerThread};
use rustix::thread::{Pid, gettid};

/// Threads that turn a [`Worker`] until this is dropped, and what the kernel calls them.
#[derive(Debug)]
pub struct MachineWorker {
    turning: WorkerThread,
    threads: Vec<Pid>,
}

impl MachineWorker {
    /// Starts one thread, named `srcu-worker`.
    ///
    /// # Errors
    ///
    /// Where the host has no thread to give.
    pub fn spawn(platform: Arc<dyn Platform>) -> io::Result<Self> {
        Self::spawn_several(platform, NonZeroUsize::MIN)
    }

    /// Starts so many threads, named `srcu-worker`: while one runs callbacks, another drives grace periods.
    ///
    /// # Errors
    ///
    /// Where the host has not so many threads to give; those that it gave have ended.
    pub fn spawn_several(platform: Arc<dyn Platform>, count: NonZeroUsize) -> io::Result<Self> {
        let (teller, told) = channel();
        let tell = move || {
            // Whoever started it waits for it below.
            let _ = teller.send(gettid());
        };
        let turning = WorkerThread::spawn_with(platform, count, tell)?;
        Ok(Self { turning, threads: told.into_iter().take(count.get()).collect() })
    }

    /// The worker, for [`mayfly_srcu::Config::worker`].
    pub fn worker(&self) -> &Arc<Worker> {
        self.turning.worker()
    }

    /// What the kernel calls each of the threads: gettid(2).
    pub fn threads(&self) -> impl Iterator<Item = Pid> {
        self.threads.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use mayfly_platform::Host;

    use super::*;

    #[test]
    fn each_of_its_threads_is_known_by_its_own_number() {
        let count = NonZeroUsize::new(3).unwrap();
        let worker = MachineWorker::spawn_several(Arc::new(Host::new()), count).unwrap();
        let mut threads: Vec<_> = worker.threads().map(Pid::as_raw_nonzero).collect();
        threads.sort_unstable();
        threads.dedup();
        assert_eq!(threads.len(), 3);
        assert!(!threads.contains(&gettid().as_raw_nonzero()));
    }
}
