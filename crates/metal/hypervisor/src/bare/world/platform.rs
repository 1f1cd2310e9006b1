//! What the core runs in: frames, threads to wait with, and the time. TLBs and caches are the architecture's part.

use alloc::sync::Arc;
use core::fmt;
use core::num::NonZeroU64;

use mayfly_hypervisor::account::ShareId;
use mayfly_vm::platform::address::Pfn;
use mayfly_vm::platform::frames::Frames;
use mayfly_vm::platform::memory::OutOfMemory;
use mayfly_vm::platform::observe::{Observer, Step, Ticket};
use mayfly_vm::platform::sync::{AtomicU32, AtomicU64};
use mayfly_vm::platform::time::Instant;
use mayfly_vm::platform::{Context, Identity, Platform, ReaderBarrier};

use super::share::Share;
use crate::bare::processor::{cpu, frames, kick, most_cpus, spin, timer, trace};
use crate::bare::threads;

/// What the core runs in here. Every value of it is the same but for the share that frames are taken of.
pub(crate) struct World {
    /// `None` is the hypervisor's own.
    share: Option<Arc<Share>>,
}

/// What a VM runs in: a share for its memory, and one for its tables and stacks.
#[derive(Clone)]
pub(crate) struct Worlds {
    pub(crate) run: Arc<World>,
    pub(crate) memory: Arc<World>,
}

impl World {
    /// That of the hypervisor itself.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { share: None })
    }

    /// That of a VM, or a disk, with such a share.
    pub(crate) fn of(share: &Arc<Share>) -> Arc<Self> {
        Arc::new(Self { share: Some(Arc::clone(share)) })
    }

    /// `1 << order` frames of zeroes, of its share.
    pub(crate) fn frames(&self, order: u32) -> Option<Pfn> {
        threads::frames::allocate_for(self.share_id(), order)
    }

    /// A frame of its share, with whatever is in it: its caller writes all of it.
    pub(crate) fn frame_as_is(&self) -> Option<Pfn> {
        frames::allocate_as_is(self.share_id(), 0)
    }

    /// The number of its share.
    pub(crate) fn share_id(&self) -> ShareId {
        self.share.as_ref().map_or(ShareId::SYSTEM, |share| share.id())
    }

    /// Its share.
    pub(crate) fn share(&self) -> Option<&Arc<Share>> {
        self.share.as_ref()
    }

    /// As [`Share::wait_for_frame`].
    pub(crate) fn wait_for_frame(&self) -> bool {
        self.share.as_ref().is_some_and(|share| share.wait_for_frame())
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("World").field(&self.share_id()).finish()
    }
}

// SAFETY: readers execute a fence; no two threads have the same number.
unsafe impl Platform for World {
    fn observer(&self) -> Option<&dyn Observer> {
        trace::is_on().then_some(self)
    }

    fn identity(&self) -> Identity {
        Identity::new(1)
    }

    fn wait(&self, word: &AtomicU32, expected: u32) {
        threads::wait(word, expected, u64::MAX);
    }

    fn wait_until(&self, word: &AtomicU32, expected: u32, deadline: Instant) {
        let deadline =
            if deadline == Instant::NEVER { u64::MAX } else { timer::ticks_at(deadline) };
        threads::wait(word, expected, deadline);
    }

    fn wake(&self, word: &AtomicU32) {
        threads::wake(word);
    }

    fn cpus(&self) -> u32 {
        // Not the number of those that are up: this one never changes.
        most_cpus()
    }

    fn interrupt(&self, cpu: u32) {
        if cpu as usize != cpu::number() {
            kick(cpu as usize);
        }
    }

    fn now(&self) -> Instant {
        timer::instant(timer::ticks())
    }

    fn reader_barrier(&self) -> ReaderBarrier {
        ReaderBarrier::Fenced
    }

    fn heavy_barrier(&self) {
        unreachable!("readers are fenced");
    }

    fn context(&self) -> Option<Context> {
        NonZeroU64::new(threads::number()).map(Context::new)
    }

    fn relax(&self) {
        threads::preemption_point();
    }

    fn spin(&self) {
        spin::relax();
    }

    fn preemption_point(&self) {
        threads::preemption_point();
    }
}

impl Observer for World {
    fn begin(&self) -> Ticket {
        Ticket(trace::ticket())
    }

    fn end(&self, begun: Ticket, step: Step) {
        trace::step(begun.0, &step);
    }
}

// SAFETY: frames are given to one owner at a time, zeroed, and mapped where their number says.
unsafe impl Frames for World {
    fn allocate(&self, order: u32) -> Result<Pfn, OutOfMemory> {
        self.frames(order).ok_or(OutOfMemory)
    }

    unsafe fn free(&self, first: Pfn, order: u32) {
        // SAFETY: the caller's promise.
        unsafe { frames::free(first, order) };
        // The reclaimer frees the tables of all VMs.
        if let Some(share) = &self.share {
            threads::has_worked_for(share.account());
        }
    }

    fn linear_map(&self) -> *const AtomicU64 {
        core::ptr::with_exposed_provenance(0)
    }
}
