//! What is left of a VM that was frozen, from which others begin.
//!
//! A run is frozen as it is ended: all vCPUs leave their guest for good. Each leaves its registers before its thread
//! ends. When all threads of the run have ended, its memory is written no more, what was written past the caches is
//! flushed, and the tables of stage 2 are freed. So an entry of a fork names a frame that nothing writes.

use alloc::sync::Arc;
use alloc::vec::Vec;

use mayfly_vm::GuestCaches;

use crate::bare::world::memory::GuestMemory;

/// What a VM was when it was frozen.
pub(crate) struct Template {
    /// Its memory, which no caller writes any more.
    pub(crate) memory: Arc<GuestMemory>,
    /// What its disk held, if it had one.
    pub(crate) disk: Option<Arc<GuestMemory>>,
    /// All else, as bytes.
    pub(super) state: Vec<u8>,
    /// The caches of its vCPUs, by number.
    pub(super) caches: Vec<GuestCaches>,
}
