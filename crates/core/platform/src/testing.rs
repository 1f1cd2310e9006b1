//! A ready machine for tests and examples: a Linux process whose frames are memory of its own.
//!
//! Its guests are programs that look into the tables at each access, so its TLBs have nothing to forget, and its caches
//! are those of the process, which every access goes through. What hardware may do beyond that it does not do: that a
//! guest finds what it should here says nothing of a missing invalidation.
//!
//! Several threads may run its guests, while others change their tables. A guest makes each access, from its look at the
//! root to the memory itself, within [`Process::access`]. What waits for TLBs, and what frees a frame, waits for the
//! accesses that have begun by then.

mod arena;
pub mod threads;

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use crate::address::Pfn;
use crate::cache::{Cache, CacheCapabilities, InstructionCaches};
use crate::frames::Frames;
use crate::memory::OutOfMemory;
use crate::sync::{AtomicU64, Ordering};
use crate::tlb::{Scope, Tlb, TlbToken, Vmid};
use crate::{Host, Layer};

pub use arena::Arena;

/// A process as a machine: a [`Mmu`](crate::Mmu), and its caches.
#[derive(Debug)]
pub struct Process {
    host: Host,
    frames: Arena,
    invalidations: AtomicU64,
    /// Held for reading by each access that is under way.
    accesses: RwLock<()>,
}

/// An access of a guest, which is under way until this is dropped.
#[derive(Debug)]
#[must_use = "the access is under way until it is dropped"]
pub struct Access<'a> {
    _accesses: RwLockReadGuard<'a, ()>,
}

impl Process {
    /// With so many frames.
    pub fn new(frames: usize) -> Self {
        Self {
            host: Host::new(),
            frames: Arena::new(frames),
            invalidations: AtomicU64::new(0),
            accesses: RwLock::new(()),
        }
    }

    /// An access of a guest begins. Within it the guest looks into tables, and accesses what they map; the thread does
    /// nothing else.
    pub fn access(&self) -> Access<'_> {
        let accesses = self.accesses.read().unwrap_or_else(PoisonError::into_inner);
        Access { _accesses: accesses }
    }

    /// Waits until all accesses are over that have begun.
    fn wait_for_accesses(&self) {
        drop(self.accesses.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Its frames.
    pub fn arena(&self) -> &Arena {
        &self.frames
    }

    /// How many invalidations of TLBs were asked for.
    pub fn invalidations(&self) -> u64 {
        self.invalidations.load(Ordering::Relaxed)
    }
}

// SAFETY: the host's answers.
unsafe impl Layer for Process {
    type Below = Host;

    fn below(&self) -> &Host {
        &self.host
    }
}

// SAFETY: the arena keeps the promises.
unsafe impl Frames for Process {
    fn allocate(&self, order: u32) -> Result<Pfn, OutOfMemory> {
        self.frames.allocate(order)
    }

    unsafe fn free(&self, first: Pfn, order: u32) {
        // VMIDs are taken from all threads' guests at once, as if they ran on one CPU. So a guest may be walking from
        // a root that no VMID is of any more, and that nothing is invalidated for.
        self.wait_for_accesses();
        // SAFETY: as the caller promises.
        unsafe { self.frames.free(first, order) };
    }

    fn linear_map(&self) -> *const AtomicU64 {
        self.frames.linear_map()
    }
}

// SAFETY: no CPU walks the tables but by software, which remembers nothing between accesses, and those under way are
// waited for.
unsafe impl Tlb for Process {
    fn issue(&self, _vmid: Vmid, _scope: Scope) -> TlbToken {
        TlbToken(self.invalidations.fetch_add(1, Ordering::SeqCst))
    }

    fn complete(&self, _token: TlbToken) {
        self.wait_for_accesses();
    }

    fn invalidate_all_vmids(&self) {
        self.wait_for_accesses();
    }
}

// SAFETY: every access of a guest goes through the caches of the process.
unsafe impl Cache for Process {
    fn capabilities(&self) -> CacheCapabilities {
        CacheCapabilities { instructions: InstructionCaches::Coherent, fgt: true }
    }

    fn clean(&self, _first: Pfn, _count: u64) {}

    fn clean_invalidate(&self, _first: Pfn, _count: u64) {}

    fn invalidate_instructions(&self, _first: Pfn, _count: u64) {}

    fn invalidate_all_instructions(&self) {}
}
