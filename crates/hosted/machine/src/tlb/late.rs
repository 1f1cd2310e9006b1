//! Entries that walks do not see yet.
//!
//! An entry that was written is in memory, where every CPU's loads find it; walks of tables need not, before a barrier
//! that orders walks (Arm: `DSB ISH` or `ISHST`, DDI 0487, "Ordering of memory accesses from translation table walks";
//! RISC-V: the hypervisor's fences). Here they find what was there before until one of these:
//!
//! - the thread that wrote goes into a guest, before which [`Guest::enter`](mayfly_vm::Guest::enter) has a barrier;
//! - the CPU that walks does;
//! - anybody issues an invalidation, which begins with a barrier. It covers what its issuer wrote, and what it has heard
//!   of; since the machine does not know what that is, all that was written before.
//!
//! A write is noted just after it is made, so that a walk may find it, and not find it a moment later: nothing forbids
//! that of two walks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use mayfly_platform::address::Pfn;

use crate::lock::lock;
use crate::shard::{SHARDS, shard};

/// Writes that walks may miss, by their frames.
#[derive(Debug)]
pub(super) struct Late {
    clock: AtomicU64,
    /// What was written before this, every walk finds.
    floor: AtomicU64,
    /// When threads had their last barrier. Threads that share a place do one another's.
    barriers: [AtomicU64; SHARDS],
    writes: [Mutex<Vec<Write>>; PLACES],
}

const PLACES: usize = 64;

/// A place holds so many at most; the one that is in it longest is found by all when there is another.
const ROOM: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Write {
    frame: Pfn,
    index: usize,
    old: u64,
    by: usize,
    at: u64,
}

impl Late {
    pub(super) fn new() -> Self {
        Self {
            clock: AtomicU64::new(1),
            floor: AtomicU64::new(0),
            barriers: [const { AtomicU64::new(0) }; SHARDS],
            writes: [const { Mutex::new(Vec::new()) }; PLACES],
        }
    }

    /// This thread has written an entry, which was `old`.
    pub(super) fn wrote(&self, frame: Pfn, index: usize, old: u64) {
        let mut writes = self.place(frame);
        self.tidy(&mut writes);
        let at = self.clock.fetch_add(1, Ordering::AcqRel);
        writes.push(Write { frame, index, old, by: shard(), at });
    }

    /// The frame has another owner, who has written all of it, and whom everybody who finds it has heard from.
    pub(super) fn renewed(&self, frame: Pfn) {
        self.place(frame).retain(|write| write.frame != frame);
    }

    /// A barrier of this thread before it goes into a guest. Walks there find all that was written before what this
    /// returns.
    pub(super) fn enter(&self) -> u64 {
        let now = self.clock.fetch_add(1, Ordering::AcqRel);
        self.barriers[shard()].fetch_max(now, Ordering::AcqRel);
        now
    }

    /// A barrier of this thread before it issues an invalidation.
    pub(super) fn issue(&self) {
        let now = self.clock.fetch_add(1, Ordering::AcqRel);
        self.floor.fetch_max(now, Ordering::AcqRel);
    }

    /// What a walk finds in entry `index` of `frame`, which has `bits`, after a barrier at `from`.
    pub(super) fn find(&self, frame: Pfn, index: usize, bits: u64, from: u64) -> u64 {
        let writes = self.place(frame);
        let here = writes.iter().rev().filter(|write| write.frame == frame && write.index == index);
        // The last that is found hides those before.
        let missed = here.take_while(|write| write.at >= from && !self.is_found(write));
        missed.last().map_or(bits, |write| write.old)
    }

    /// Whether all walks find it.
    fn is_found(&self, write: &Write) -> bool {
        write.at < self.floor.load(Ordering::Acquire)
            || write.at < self.barriers[write.by].load(Ordering::Acquire)
    }

    fn tidy(&self, writes: &mut Vec<Write>) {
        let mut found = Vec::new();
        // From the last one on: one that is found hides those before.
        for index in (0..writes.len()).rev() {
            let write = writes[index];
            let word = (write.frame, write.index);
            if found.contains(&word) {
                writes.remove(index);
            } else if self.is_found(&write) {
                found.push(word);
                writes.remove(index);
            }
        }
        if writes.len() >= ROOM {
            writes.remove(0);
        }
    }

    fn place(&self, frame: Pfn) -> MutexGuard<'_, Vec<Write>> {
        lock(&self.writes[frame.get() as usize % PLACES])
    }
}
