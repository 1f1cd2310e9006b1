//! How the threads of a run go over to the next one of the same VM, where a fork goes back to what it began as.
//!
//! A thread that has left the run *waits*: it counts itself here, and then counts out of the run's `alive`. When no thread
//! is alive, none uses the run any more, and the number of those that wait stays as it is. The thread of the VM then
//! passes on to them what is next: another run, of which they are alive already; or none, and they are alive in this one
//! until they have ended.
//!
//! \[wait\], the count here, comes before the release of `alive`, which pairs with the acquire of the thread of the VM: it
//! finds all that wait. \[pass\], the release of the word, comes after the next run is there, and pairs with the acquire of
//! each thread that waits.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use mayfly_vm::platform::Platform;
use mayfly_vm::platform::sync::AtomicU32;

use super::run::Run;
use crate::bare::processor::spin::SpinLock;
use crate::bare::world::World;

/// What comes after a run.
pub(super) struct Relay {
    /// Whether it has been passed on.
    word: AtomicU32,
    waiting: AtomicU32,
    next: SpinLock<Option<Arc<Run>>>,
}

const HELD: u32 = 0;
const PASSED: u32 = 1;

impl Relay {
    pub(super) fn new() -> Self {
        let (word, waiting) = (AtomicU32::new(HELD), AtomicU32::new(0));
        Self { word, waiting, next: SpinLock::new(None) }
    }

    /// The calling thread is going to wait for what comes next, and counts out of the run then.
    pub(super) fn waits(&self) {
        // [wait]
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// How many threads wait, of a run of which none is alive.
    pub(super) fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Passes on the next run, or none. Once.
    pub(super) fn pass(&self, world: &World, next: Option<Arc<Run>>) {
        *self.next.lock() = next;
        // [pass]
        self.word.store(PASSED, Ordering::Release);
        world.wake(&self.word);
    }

    /// Waits for what comes next.
    pub(super) fn take(&self, world: &World) -> Option<Arc<Run>> {
        while self.word.load(Ordering::Acquire) == HELD {
            world.wait(&self.word, HELD);
        }
        self.next.lock().clone()
    }
}
