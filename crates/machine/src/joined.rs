//! Threads that end before who started them.

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
        let (told, thread) = told();
        let run = move || {
            told();
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

/// What a thread calls first, and what the kernel calls it from then on.
pub(crate) fn told() -> (impl Fn() + Clone + Send + 'static, Arc<OnceLock<Pid>>) {
    let thread = Arc::new(OnceLock::new());
    let teller = Arc::clone(&thread);
    let tell = move || {
        // It is called once.
        let _ = teller.set(gettid());
    };
    (tell, thread)
}

impl Drop for Joined {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            // It has nothing to return; a panic has been reported by its own message.
            let _ = handle.join();
        }
    }
}
