//! A thread that ends before its owner does.

use std::io;
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, JoinHandle};

use rustix::thread::{Pid, gettid};

/// A thread that is waited for when this is dropped, by when it has been told to end.
#[derive(Debug)]
pub(crate) struct Joined {
    handle: Option<JoinHandle<()>>,
    thread: Pid,
}

impl Joined {
    /// Starts a thread of this name.
    pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let thread = Arc::new(OnceLock::new());
        let told = Arc::clone(&thread);
        let run = move || {
            // Nobody else sets it.
            let _ = told.set(gettid());
            work();
        };
        let handle = Some(Builder::new().name(name.into()).spawn(run)?);
        Ok(Self { handle, thread: *thread.wait() })
    }

    /// What the kernel calls it.
    pub(crate) fn thread(&self) -> Pid {
        self.thread
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            // It has nothing to return; a panic has been reported by its own message.
            let _ = handle.join();
        }
    }
}
