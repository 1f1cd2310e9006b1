//! A platform for counting the instructions of readers, where nobody else runs.

use mayfly_platform::sync::{AtomicU32, Ordering, fence};
use mayfly_platform::time::Instant;
use mayfly_platform::{Host, Identity, Platform, ReaderBarrier};

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
unsafe impl Platform for SingleThread {
    fn identity(&self) -> Identity {
        self.0.identity()
    }

    fn wait(&self, word: &AtomicU32, expected: u32) {
        self.0.wait(word, expected);
    }

    fn wait_until(&self, word: &AtomicU32, expected: u32, deadline: Instant) {
        self.0.wait_until(word, expected, deadline);
    }

    fn wake(&self, word: &AtomicU32) {
        self.0.wake(word);
    }

    fn now(&self) -> Instant {
        self.0.now()
    }

    fn reader_barrier(&self) -> ReaderBarrier {
        ReaderBarrier::Asymmetric
    }

    fn heavy_barrier(&self) {
        fence(Ordering::SeqCst);
    }
}
