//! What is left of a VM that was frozen, or what one was that was forked while it ran: others begin from it.
//!
//! A run is frozen as it is ended: all vCPUs leave their guest for good. Each leaves its registers before its thread
//! ends. When all threads of the run have ended, its memory is written no more, what was written past the caches is
//! flushed, and the tables of stage 2 are freed. So an entry of a fork names a frame that nothing writes.

use alloc::sync::Arc;

use mayfly_hypervisor::needs::Needs;

use super::arch::Model;
use crate::bare::processor::heap::Guaranteed;
use crate::bare::processor::timer;
use crate::bare::world::memory::GuestMemory;

/// What a VM was when it was frozen, or forked.
pub(crate) struct Template {
    /// Its memory, which no caller writes any more.
    pub(crate) memory: Arc<GuestMemory>,
    /// What its disk held, if it had one.
    pub(crate) disk: Option<Arc<GuestMemory>>,
    /// All else.
    pub(super) model: Model,
    /// When it was frozen, in ticks.
    since: u64,
    /// The heap that all of it has: the last, so that it is given back when that is free.
    _heap: Guaranteed,
}

impl Template {
    /// What is left of a VM, whose run still has its heap guaranteed: its memory, which is to have so many bytes of heap, and
    /// all else. `None`, if the heap that this keeps cannot be.
    pub(crate) fn try_new(
        (memory, bytes): (Arc<GuestMemory>, usize),
        disk: Option<Arc<GuestMemory>>,
        model: Model,
    ) -> Option<Self> {
        let heap = Needs::of_pieces(model.heap_bytes() + bytes);
        let heap = Guaranteed::try_new(heap).ok()?;
        Some(Self { memory, disk, model, since: timer::ticks(), _heap: heap })
    }

    /// For how many nanoseconds it has been frozen.
    pub(super) fn frozen(&self) -> u64 {
        timer::instant(timer::ticks() - self.since).as_nanos()
    }
}
