//! Mutexes that outlive a panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a mutex of the machine's, also after a panic: a thread that panics under one leaves nothing half done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
