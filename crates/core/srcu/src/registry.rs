//! Whether any reader is registered.
//!
//! A writer asks that without looking at the readers. If there is none, a fence of the writer's own is enough for
//! [heavy]. **[registered]**: a reader counts itself and passes `fence(SeqCst)`, then enters sections; a writer
//! publishes, passes a fence, and looks at the count. A writer whose fence comes before the reader's may find no
//! reader. Then this reader's loads, which all come after its fence, find what the writer published before. A writer
//! whose fence comes after the reader's finds the reader.

use mayfly_platform::sync::{AtomicUsize, Ordering, fence};

pub(crate) struct Registry(AtomicUsize);

impl Registry {
    pub(crate) fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    pub(crate) fn enter(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
        // [registered]
        fence(Ordering::SeqCst);
    }

    pub(crate) fn leave(&self) {
        // Release, pairing with the acquire in `is_empty`: this reader's sections happened before.
        self.0.fetch_sub(1, Ordering::Release);
    }

    /// Whether no reader is registered. The caller executed a full fence before: [registered].
    pub(crate) fn is_empty(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }
}
