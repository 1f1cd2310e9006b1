//! A platform for counting the instructions of readers, where no other thread runs.

use mayfly_platform::sync::{Ordering, fence};
use mayfly_platform::{Host, Layer, ReaderBarrier};

/// Claims an asymmetric barrier wherever it runs, for valgrind may have no `membarrier`, and a domain would choose
/// fenced readers.
///
/// Its heavy barrier is the caller's own fence. That orders nothing on other threads: right only where there is one.
#[derive(Debug)]
pub struct SingleThread(Host);

impl SingleThread {
    /// The platform of this thread.
    pub fn new() -> Self {
        Self(Host::fenced())
    }
}

impl Default for SingleThread {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: one thread is measured, so a fence is a barrier for every CPU that runs a reader.
unsafe impl Layer for SingleThread {
    type Below = Host;

    fn below(&self) -> &Host {
        &self.0
    }

    fn reader_barrier(&self) -> ReaderBarrier {
        ReaderBarrier::Asymmetric
    }

    fn heavy_barrier(&self) {
        fence(Ordering::SeqCst);
    }
}
