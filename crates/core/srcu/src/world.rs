//! The platform, whose panics go no further.
//!
//! Between the announcement of a grace period and the end of its scan, no thread may believe that its readers have been
//! looked at. A thread that waits for a grace period owns what readers may still have. A thread that wakes, or counts,
//! does so for others. A platform that panics there would unwind through all that, and a reader's memory would be freed
//! on the way. So every call of the platform that this crate makes ends in [`no_unwind`]: it returns, or the program
//! ends.

use alloc::sync::Arc;

use mayfly_platform::sync::AtomicU32;
use mayfly_platform::time::Instant;
use mayfly_platform::{Context, Identity, Op, Platform, ReaderBarrier, no_unwind};

#[derive(Clone)]
pub(crate) struct World(Arc<dyn Platform>);

impl World {
    pub(crate) fn new(platform: Arc<dyn Platform>) -> Self {
        Self(platform)
    }

    /// The platform itself, for [`Lock`](mayfly_platform::lock::Lock), which sees to its panics.
    pub(crate) fn platform(&self) -> &dyn Platform {
        &*self.0
    }

    pub(crate) fn identity(&self) -> Identity {
        no_unwind(|| self.0.identity())
    }

    pub(crate) fn is_fenced(&self) -> bool {
        no_unwind(|| self.0.reader_barrier()) == ReaderBarrier::Fenced
    }

    pub(crate) fn wait(&self, word: &AtomicU32, expected: u32) {
        no_unwind(|| self.0.wait(word, expected));
    }

    pub(crate) fn wait_until(&self, word: &AtomicU32, expected: u32, deadline: Instant) {
        no_unwind(|| self.0.wait_until(word, expected, deadline));
    }

    pub(crate) fn wake(&self, word: &AtomicU32) {
        no_unwind(|| self.0.wake(word));
    }

    pub(crate) fn now(&self) -> Instant {
        no_unwind(|| self.0.now())
    }

    pub(crate) fn heavy_barrier(&self) {
        no_unwind(|| self.0.heavy_barrier());
    }

    pub(crate) fn charge(&self, op: Op) {
        no_unwind(|| self.0.charge(op));
    }

    pub(crate) fn context(&self) -> Option<Context> {
        no_unwind(|| self.0.context())
    }
}
