//! Which context is where, in debug builds: to detect a thread that waits for itself.
//!
//! The core has no thread-locals. So it asks the platform what runs here ([`Platform::context`]), and remembers the
//! answer where a context enters a place that others may wait for. It is a sieve. There is room for a fixed number of
//! contexts at a time, and a context that finds no room is not remembered. A guard that may be sent to another thread
//! is never entered here. So a context that is found here is here, and a correct program never panics.
//!
//! [`Platform::context`]: mayfly_platform::Platform::context

use core::sync::atomic::{AtomicU64, Ordering};

use mayfly_platform::Context;

use crate::world::World;

/// So many are remembered at a time.
const ROOM: usize = if LOOKED_FOR { 32 } else { 0 };

/// Whether this build looks for threads that wait for themselves. (A model checker finds them by the deadlock.)
pub(crate) const LOOKED_FOR: bool =
    cfg!(debug_assertions) && !cfg!(any(mayfly_loom, mayfly_shuttle));

/// What runs here, in a build that wants to know, on a platform that does.
#[inline]
pub(crate) fn here(world: &World) -> Option<Context> {
    if LOOKED_FOR { world.context() } else { None }
}

/// The contexts that are in some place. (These atomics synchronise nothing, so they are none of a model checker's.)
pub(crate) struct Contexts([AtomicU64; ROOM]);

/// A context that was entered, by the place that it was given.
#[must_use]
pub(crate) struct Entry(Option<usize>);

impl Contexts {
    pub(crate) fn new() -> Self {
        Self([const { AtomicU64::new(0) }; ROOM])
    }

    /// Remembers what runs here, until [`Contexts::leave`].
    #[inline]
    pub(crate) fn enter(&self, world: &World) -> Entry {
        Entry(here(world).and_then(|here| {
            let take = |place: &AtomicU64| {
                place.compare_exchange(0, here.get().get(), Ordering::Relaxed, Ordering::Relaxed)
            };
            self.0.iter().position(|place| take(place).is_ok())
        }))
    }

    #[inline]
    pub(crate) fn leave(&self, entry: &Entry) {
        if let Some(place) = entry.0.and_then(|place| self.0.get(place)) {
            place.store(0, Ordering::Relaxed);
        }
    }

    /// Whether what runs here has been entered.
    pub(crate) fn has(&self, world: &World) -> bool {
        here(world).is_some_and(|here| {
            self.0.iter().any(|place| place.load(Ordering::Relaxed) == here.get().get())
        })
    }
}
