//! The thread that merges: Linux's `ksmd`.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use super::Merger;

/// A thread that scans batch after batch, with pauses, while [`Tunables::run`](super::Tunables::run) says so; until
/// this is dropped.
#[derive(Debug)]
pub struct MergerThread {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The pause while there is nothing to do.
const IDLE: Duration = Duration::from_millis(20);

impl MergerThread {
    /// Starts the thread, named `ksmd`.
    ///
    /// # Errors
    ///
    /// Where the host has no thread to give.
    pub fn spawn(merger: Arc<Merger>) -> io::Result<Self> {
        let (stop, stopped) = channel();
        let thread = Builder::new().name("ksmd".into()).spawn(move || {
            let mut pause = Duration::ZERO;
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                pause = merger.serve().unwrap_or(IDLE);
            }
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for MergerThread {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // It has nothing to return; a panic has been reported by its own message.
            let _ = thread.join();
        }
    }
}
