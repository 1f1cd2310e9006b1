//! What the machine's VMs run on.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mayfly_platform::address::Pfn;
use mayfly_platform::frames::Frames;
use mayfly_platform::memory::OutOfMemory;
use mayfly_platform::sync::CacheLine;
use mayfly_platform::tlb::{Scope, Tlb, TlbToken, Vmid};
use mayfly_platform::{Layer, Op, Platform};

use crate::shard::{SHARDS, shard};
use crate::unsteady::Unsteady;
use crate::{Arena, Rigour, Tlbs};

/// The host's platform, physical memory and TLBs, as one: a [`mayfly_platform::Mmu`]. Keeps the books of what the core
/// charges.
#[derive(Debug)]
pub struct Hardware {
    host: Arc<Unsteady>,
    arena: Arc<Arena>,
    tlbs: Arc<Tlbs>,
    charges: [CacheLine<[AtomicU64; OPS]>; SHARDS],
}

/// Numbers of [`number`].
const OPS: usize = 15;

impl Hardware {
    /// With an arena of `frames` frames, and no CPUs.
    ///
    /// # Errors
    ///
    /// As [`Arena::new`].
    pub fn new(frames: usize) -> io::Result<Self> {
        Ok(Self::with_arena(Arc::new(Arena::new(frames)?)))
    }

    /// With `arena`, which several may share.
    pub fn with_arena(arena: Arc<Arena>) -> Self {
        let host = Arc::new(Unsteady::new(Rigour::all().contains(Rigour::WAKES_EARLY)));
        let tlbs = Arc::new(Tlbs::new(host.clone()));
        Self { host, arena, tlbs, charges: Default::default() }
    }

    /// Its physical memory.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Its TLBs.
    pub fn tlbs(&self) -> &Arc<Tlbs> {
        &self.tlbs
    }

    /// Says how far it goes, from now on, in what the manuals allow it.
    pub fn set_rigour(&self, rigour: Rigour) {
        self.tlbs.set_rigour(rigour);
        self.host.set_wakes_early(rigour.contains(Rigour::WAKES_EARLY));
    }

    /// How often `op` was charged; of one that says how much, how much of it in all, whatever `op` says here.
    pub fn charged(&self, op: Op) -> u64 {
        self.charges.iter().map(|shard| shard[number(op)].load(Ordering::Relaxed)).sum()
    }
}

/// Where `op` is counted; all that are not known here, together.
fn number(op: Op) -> usize {
    match op {
        Op::GracePeriod => 0,
        Op::HeavyBarrier => 1,
        Op::Sleep => 2,
        Op::Callbacks(_) => 3,
        Op::TlbInvalidation => 4,
        Op::FrozenWait => 5,
        Op::RootLoadBegin => 6,
        Op::TrackingFault => 7,
        Op::CleanedToMap(_) => 8,
        Op::Flushed(_) => 9,
        Op::EntriesWritten(_) => 10,
        Op::TablesFreed(_) => 11,
        Op::TablesKept(_) => 12,
        Op::FaultRefused => 13,
        _ => OPS - 1,
    }
}

// SAFETY: the machine's threads are the process's, and all of these are its platform's answers.
unsafe impl Layer for Hardware {
    type Below = dyn Platform;

    fn below(&self) -> &(dyn Platform + 'static) {
        &*self.host
    }

    fn charge(&self, op: Op) {
        let amount = match op {
            Op::Callbacks(amount)
            | Op::CleanedToMap(amount)
            | Op::Flushed(amount)
            | Op::EntriesWritten(amount)
            | Op::TablesFreed(amount)
            | Op::TablesKept(amount) => amount,
            _ => 1,
        };
        self.charges[shard()][number(op)].fetch_add(amount, Ordering::Relaxed);
    }
}

// SAFETY: the arena keeps the promises.
unsafe impl Frames for Hardware {
    fn allocate(&self, order: u32) -> Result<Pfn, OutOfMemory> {
        self.arena.allocate(order)
    }

    unsafe fn free(&self, first: Pfn, order: u32) {
        self.arena.free(first, order);
    }

    fn linear_map(&self) -> *const AtomicU64 {
        self.arena.linear_map()
    }
}

impl Tlb for Hardware {
    fn issue(&self, vmid: Vmid, scope: Scope) -> TlbToken {
        self.tlbs.issue(vmid, scope)
    }

    fn complete(&self, token: TlbToken) {
        self.tlbs.complete(token);
    }

    fn invalidate_all_vmids(&self) {
        self.tlbs.invalidate_all_vmids();
    }
}
