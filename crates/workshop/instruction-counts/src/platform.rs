//! The platform: one processor, frames, and TLBs that count their invalidations.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64 as Word, Ordering};

use mayfly_vm::platform::address::Pfn;
use mayfly_vm::platform::cache::{Cache, CacheCapabilities, InstructionCaches};
use mayfly_vm::platform::frames::{Frames, WORDS};
use mayfly_vm::platform::memory::OutOfMemory;
use mayfly_vm::platform::sync::{AtomicU32, AtomicU64};
use mayfly_vm::platform::time::Instant;
use mayfly_vm::platform::tlb::{Scope, Tlb, TlbToken, Vmid};
use mayfly_vm::platform::{Identity, Op, Platform, ReaderBarrier};

/// Memory of the machine from here on, in frames, is for tables.
const FIRST_FRAME: u64 = 0x7000_0000 >> 12;
const LAST_FRAME: u64 = 0xc000_0000 >> 12;

/// One processor, whose readers are not fenced.
pub(crate) struct Machine {
    next: Word,
    invalidations: Word,
    frames: Word,
    maintained: Word,
    /// What its instruction caches are.
    instructions: InstructionCaches,
    cpus: u32,
}

impl Machine {
    pub(crate) fn new(instructions: InstructionCaches) -> Arc<Self> {
        Self::with_cpus(instructions, 1)
    }

    /// One that has so many CPUs, as the core is told: there is one.
    pub(crate) fn with_cpus(instructions: InstructionCaches, cpus: u32) -> Arc<Self> {
        // Each machine has frames of its own: none is given twice, so all begin as zeroes.
        static MACHINES: Word = Word::new(0);
        const SHARE: u64 = 1 << 13;
        let first = FIRST_FRAME + MACHINES.fetch_add(1, Ordering::Relaxed) * SHARE;
        assert!(first + SHARE <= LAST_FRAME, "too many machines");
        Arc::new(Self {
            next: Word::new(first),
            invalidations: Word::new(0),
            frames: Word::new(0),
            maintained: Word::new(0),
            instructions,
            cpus,
        })
    }

    /// Invalidations of TLBs so far, one for each address.
    pub(crate) fn invalidations(&self) -> u64 {
        self.invalidations.load(Ordering::Relaxed)
    }

    /// Frames that were given so far.
    pub(crate) fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }

    /// Frames that were cleaned so far, or cleaned and invalidated.
    pub(crate) fn maintained(&self) -> u64 {
        self.maintained.load(Ordering::Relaxed)
    }
}

// SAFETY: one processor passes its own barriers, and there is no other; each machine may take another's place.
unsafe impl Platform for Machine {
    #[unsafe(link_section = ".text.outside.platform")]
    fn identity(&self) -> Identity {
        Identity::new(1)
    }

    #[unsafe(link_section = ".text.outside.platform")]
    fn cpus(&self) -> u32 {
        self.cpus
    }

    #[unsafe(link_section = ".text.outside.platform")]
    fn wait(&self, word: &AtomicU32, expected: u32) {
        let present = word.load(Ordering::Relaxed);
        assert!(present != expected, "a wait for another thread, where there is none");
    }

    #[unsafe(link_section = ".text.outside.platform")]
    fn wait_until(&self, word: &AtomicU32, expected: u32, _deadline: Instant) {
        self.wait(word, expected);
    }

    #[unsafe(link_section = ".text.outside.platform")]
    fn wake(&self, _word: &AtomicU32) {}

    #[unsafe(link_section = ".text.outside.platform")]
    fn interrupt(&self, _cpu: u32) {}

    #[unsafe(link_section = ".text.outside.platform")]
    fn now(&self) -> Instant {
        Instant::from_nanos(0)
    }

    #[unsafe(link_section = ".text.outside.platform")]
    fn reader_barrier(&self) -> ReaderBarrier {
        ReaderBarrier::Asymmetric
    }

    #[unsafe(link_section = ".text.outside.platform")]
    fn heavy_barrier(&self) {}

    #[unsafe(link_section = ".text.outside.platform")]
    fn relax(&self) {}

    #[unsafe(link_section = ".text.outside.platform")]
    fn charge(&self, _op: Op) {}
}

// SAFETY: the frames are memory of the machine that is used for nothing else, zeroes from the beginning, given once
// each, and mapped where the linear map says.
unsafe impl Frames for Machine {
    #[unsafe(link_section = ".text.outside.platform")]
    fn allocate(&self, order: u32) -> Result<Pfn, OutOfMemory> {
        let count = 1 << order;
        let first = self.next.load(Ordering::Relaxed).next_multiple_of(count);
        self.next.store(first + count, Ordering::Relaxed);
        self.frames.store(self.frames() + count, Ordering::Relaxed);
        Ok(Pfn::new(first))
    }

    #[unsafe(link_section = ".text.outside.platform")]
    unsafe fn free(&self, _first: Pfn, _order: u32) {}

    #[unsafe(link_section = ".text.outside.platform")]
    fn linear_map(&self) -> *const AtomicU64 {
        const { assert!(WORDS * 8 == 4096, "frames of 4 KiB") };
        // One to one.
        core::ptr::with_exposed_provenance(0)
    }
}

// SAFETY: there is no guest, so no CPU walks the tables, and no TLB has anything.
unsafe impl Tlb for Machine {
    #[unsafe(link_section = ".text.outside.platform")]
    fn issue(&self, _vmid: Vmid, scope: Scope) -> TlbToken {
        let count = match scope {
            Scope::Range(span) => span.count(),
            Scope::All => 1,
        };
        self.invalidations.store(self.invalidations() + count, Ordering::Relaxed);
        TlbToken(0)
    }

    #[unsafe(link_section = ".text.outside.platform")]
    fn complete(&self, _token: TlbToken) {}

    #[unsafe(link_section = ".text.outside.platform")]
    fn invalidate_all_vmids(&self) {
        self.invalidations.store(self.invalidations() + 1, Ordering::Relaxed);
    }

    // There is no guest that its CPU could walk out of, so none is asked.
    #[unsafe(link_section = ".text.outside.platform")]
    fn vacate_all(&self, _cpus: &mut dyn Iterator<Item = u32>, _vmid: Vmid) {}

    #[unsafe(link_section = ".text.outside.platform")]
    fn max_by_address(&self) -> u64 {
        512
    }
}

// SAFETY: there is no guest, so none goes past the caches.
unsafe impl Cache for Machine {
    #[unsafe(link_section = ".text.outside.platform")]
    fn capabilities(&self) -> CacheCapabilities {
        CacheCapabilities { instructions: self.instructions, fgt: false }
    }

    #[unsafe(link_section = ".text.outside.platform")]
    fn clean(&self, _first: Pfn, count: u64) {
        self.maintained.store(self.maintained() + count, Ordering::Relaxed);
    }

    #[unsafe(link_section = ".text.outside.platform")]
    fn clean_invalidate(&self, _first: Pfn, count: u64) {
        self.maintained.store(self.maintained() + count, Ordering::Relaxed);
    }

    #[unsafe(link_section = ".text.outside.platform")]
    fn invalidate_instructions(&self, _first: Pfn, count: u64) {
        self.maintained.store(self.maintained() + count, Ordering::Relaxed);
    }

    #[unsafe(link_section = ".text.outside.platform")]
    fn invalidate_all_instructions(&self) {}
}
