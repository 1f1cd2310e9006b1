//! Why a run is not kept, and why none goes on as one was, on every architecture.

use mayfly_state::Error;
use mayfly_vm::platform::memory::OutOfMemory;

/// Why a run is not kept.
#[derive(Debug)]
pub(crate) enum NotKept {
    /// There is no memory for what it was.
    OutOfMemory,
    /// A vCPU has no thread, or a part of it is not at rest.
    NotStopped,
}

impl From<OutOfMemory> for NotKept {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

/// Why bytes make no model.
#[derive(Debug)]
pub(crate) enum NotLoaded {
    OutOfMemory,
    /// They are no state of such a machine.
    Bytes(Error),
}

impl From<OutOfMemory> for NotLoaded {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

impl From<Error> for NotLoaded {
    fn from(error: Error) -> Self {
        Self::Bytes(error)
    }
}

/// Why no machine goes on as a model is.
#[derive(Debug)]
pub(crate) enum NotResumed {
    OutOfMemory,
    /// A part of the model is not at rest.
    NotAtRest,
}

impl From<OutOfMemory> for NotResumed {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}
