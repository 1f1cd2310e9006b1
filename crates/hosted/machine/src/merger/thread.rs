//! The thread that merges: Linux's `ksmd`.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use super::control::Merger;
use crate::joined::Joined;

/// A thread that scans batch after batch, with pauses, while [`Tunables::run`](super::Tunables::run) says so; until
/// this is dropped.
#[derive(Debug)]
pub struct MergerThread {
    /// Dropped first, which ends the thread.
    _stop: Sender<()>,
    _thread: Joined,
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
        let thread = Joined::spawn("ksmd", move || {
            let mut pause = Duration::ZERO;
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                pause = merger.serve().unwrap_or(IDLE);
            }
        })?;
        Ok(Self { _stop: stop, _thread: thread })
    }
}
