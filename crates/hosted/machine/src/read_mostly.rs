//! A lock whose readers do not meet.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use mayfly_platform::sync::CacheLine;

use crate::shard::{SHARDS, shard};

/// A value that many threads read at once, each through a gate that it shares with few, and that one may change who
/// has closed all gates.
pub(crate) struct ReadMostly<T> {
    gates: [CacheLine<RwLock<()>>; SHARDS],
    value: UnsafeCell<T>,
}

// SAFETY: as for `RwLock`: readers share `&T` (`T: Sync`), a writer may take the value apart elsewhere (`T: Send`).
unsafe impl<T: Send + Sync> Sync for ReadMostly<T> {}

impl<T> ReadMostly<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { gates: Default::default(), value: UnsafeCell::new(value) }
    }

    /// The value, which stays as it is until the guard is dropped.
    pub(crate) fn read(&self) -> Reading<'_, T> {
        let gate = self.gates[shard()].read().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: `&mut T` is made only while all gates are closed, and this one is held open.
        Reading { value: unsafe { &*self.value.get() }, _gate: gate }
    }

    /// The value, to be changed; waits for those who read it.
    pub(crate) fn write(&self) -> Writing<'_, T> {
        // In order, so that two writers cannot hold what the other waits for.
        let gates =
            self.gates.each_ref().map(|gate| gate.write().unwrap_or_else(PoisonError::into_inner));
        // SAFETY: all gates are closed: there is no reader, and no other writer.
        Writing { value: unsafe { &mut *self.value.get() }, _gates: gates }
    }
}

impl<T> fmt::Debug for ReadMostly<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadMostly").finish_non_exhaustive()
    }
}

/// The right to read, until dropped.
pub(crate) struct Reading<'a, T> {
    value: &'a T,
    _gate: RwLockReadGuard<'a, ()>,
}

impl<T> Deref for Reading<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value
    }
}

/// The right to change, until dropped.
pub(crate) struct Writing<'a, T> {
    value: &'a mut T,
    _gates: [RwLockWriteGuard<'a, ()>; SHARDS],
}

impl<T> Deref for Writing<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value
    }
}

impl<T> DerefMut for Writing<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value
    }
}
