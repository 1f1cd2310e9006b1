//! Threads that end before who started them.

use std::io;
use std::thread::{Builder, JoinHandle};

/// A thread that is waited for when this is dropped, by when it has been told to end.
#[derive(Debug)]
pub(crate) struct Joined(Option<JoinHandle<()>>);

impl Joined {
    /// Starts a thread of this name.
    pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        Ok(Self(Some(Builder::new().name(name.into()).spawn(work)?)))
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            // It has nothing to return; a panic has been reported by its own message.
            let _ = thread.join();
        }
    }
}
