//! What the machine's VMs run on.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use mayfly_platform::address::{Gfn, Pfn};
use mayfly_platform::frames::Frames;
use mayfly_platform::memory::OutOfMemory;
use mayfly_platform::observe::{Observer, Step, Ticket};
use mayfly_platform::sync::CacheLine;
use mayfly_platform::tlb::{Scope, Span, Tlb, TlbToken, Vmid};
use mayfly_platform::{Host, Layer, Op, Platform};

use crate::recorder::{Recorder, Sink};
use crate::seat::{Seat, SharedCpus};
use crate::shard::{SHARDS, shard};
use crate::unsteady::Unsteady;
use crate::{Arena, LeftOut, Processors, Rigour, Tlbs};

/// The host's platform, physical memory and TLBs, as one: a [`mayfly_platform::Mmu`]. Keeps the books of what the core
/// charges.
#[derive(Debug)]
pub struct Hardware {
    host: Arc<Unsteady>,
    arena: Arc<Arena>,
    tlbs: Arc<Tlbs>,
    processors: Processors,
    /// Those of them that vCPUs share, if they do.
    shared: Option<Arc<SharedCpus>>,
    /// How many vCPUs were given one.
    seats: AtomicUsize,
    /// Whether its CPUs may walk past what was written, where it goes so far.
    walks_late: AtomicBool,
    charges: [CacheLine<[AtomicU64; OPS]>; SHARDS],
}

/// Numbers of [`number`].
const OPS: usize = 17;

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
        Self::with_processors(arena, Processors::default())
    }

    /// As [`Hardware::with_arena`], with such processors.
    ///
    /// # Panics
    ///
    /// If there are more of them than [`CPUS`](crate::CPUS).
    pub fn with_processors(arena: Arc<Arena>, processors: Processors) -> Self {
        let host = if processors.fenced { Host::fenced() } else { Host::new() };
        let host = Arc::new(Unsteady::new(host, Rigour::all().contains(Rigour::WAKES_EARLY)));
        let tlbs = Arc::new(Tlbs::of(&processors, host.clone()));
        let shared = processors.shared.map(|cpus| Arc::new(SharedCpus::new(&tlbs, cpus.get())));
        Self {
            host,
            arena,
            tlbs,
            processors,
            shared,
            seats: AtomicUsize::new(0),
            walks_late: AtomicBool::new(false),
            charges: Default::default(),
        }
    }

    /// Its physical memory.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Its TLBs.
    pub fn tlbs(&self) -> &Arc<Tlbs> {
        &self.tlbs
    }

    /// What processors it has.
    pub fn processors(&self) -> Processors {
        self.processors
    }

    /// A place for a vCPU.
    pub(crate) fn seat(&self) -> Seat {
        let own = || Seat::Own(Box::new(self.tlbs.cpu()));
        self.shared.as_ref().map_or_else(own, |shared| {
            Seat::among(Arc::clone(shared), self.seats.fetch_add(1, Ordering::Relaxed))
        })
    }

    /// Says how far it goes, from now on, in what the manuals allow it.
    pub fn set_rigour(&self, rigour: Rigour) {
        self.tlbs.set_rigour(rigour);
        self.host.set_wakes_early(rigour.contains(Rigour::WAKES_EARLY));
    }

    /// Has what it sees recorded from now on; of VMs, those that are created from now on. The first sink stays.
    pub fn record(&self, sink: Sink) {
        let recorder = Arc::new(Recorder::new(sink));
        self.arena.record(Arc::clone(&recorder));
        self.tlbs.record(recorder);
    }

    /// Its CPUs are such as may walk past what was written.
    pub(crate) fn walk_late(&self) {
        self.walks_late.store(true, Ordering::Relaxed);
    }

    /// Another invalidation, of nothing, where the one before is complete no sooner.
    fn complete_again(&self) {
        if self.processors.completes_early && !self.tlbs.leaves_out(LeftOut::Repeat) {
            let page = Span::pages(Gfn::new(0)..Gfn::new(1));
            // No guest has this one.
            self.tlbs.complete(self.tlbs.issue(Vmid(0), Scope::Range(page)));
        }
    }

    fn notes_writes(&self) -> bool {
        self.walks_late.load(Ordering::Relaxed) && self.tlbs.rigour().contains(Rigour::WALKS_LATE)
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
        Op::InstructionsForgotten(_) => 14,
        Op::AllInstructionsForgotten => 15,
        _ => OPS - 1,
    }
}

// SAFETY: the machine's threads are the process's, and all of these are its platform's answers.
unsafe impl Layer for Hardware {
    type Below = dyn Platform;

    fn below(&self) -> &(dyn Platform + 'static) {
        &*self.host
    }

    fn observer(&self) -> Option<&dyn Observer> {
        (self.notes_writes() || self.tlbs.recorder().is_some()).then_some(self)
    }

    fn cpus(&self) -> u32 {
        self.processors.count()
    }

    fn interrupt(&self, cpu: u32) {
        self.tlbs.interrupt(cpu);
    }

    fn charge(&self, op: Op) {
        let amount = match op {
            Op::Callbacks(amount)
            | Op::CleanedToMap(amount)
            | Op::Flushed(amount)
            | Op::InstructionsForgotten(amount)
            | Op::EntriesWritten(amount)
            | Op::TablesFreed(amount)
            | Op::TablesKept(amount) => amount,
            _ => 1,
        };
        self.charges[shard()][number(op)].fetch_add(amount, Ordering::Relaxed);
    }
}

impl Observer for Hardware {
    fn begin(&self) -> Ticket {
        Ticket(self.tlbs.recorder().map_or(0, Recorder::begin))
    }

    fn end(&self, begun: Ticket, step: Step) {
        match step {
            Step::Entry { table, index, old, .. } if self.notes_writes() => {
                self.tlbs.wrote(table, index, old);
            }
            Step::RootGone { top } => self.tlbs.root_gone(top),
            Step::Filled { table } if self.notes_writes() => self.tlbs.renewed(table, 0),
            _ => {}
        }
        if let Some(recorder) = self.tlbs.recorder() {
            recorder.step(begun.0, &step, self.arena.memory());
        }
    }
}

// SAFETY: the arena keeps the promises.
unsafe impl Frames for Hardware {
    fn allocate(&self, order: u32) -> Result<Pfn, OutOfMemory> {
        let first = self.arena.allocate(order)?;
        if self.notes_writes() {
            self.tlbs.renewed(first, order);
        }
        Ok(first)
    }

    unsafe fn free(&self, first: Pfn, order: u32) {
        self.arena.free(first, order);
    }

    fn linear_map(&self) -> *const AtomicU64 {
        self.arena.linear_map()
    }
}

// SAFETY: asks the TLBs.
unsafe impl Tlb for Hardware {
    fn tlbs(&self) -> usize {
        Tlb::tlbs(&*self.tlbs)
    }

    fn issue(&self, vmid: Vmid, scope: Scope) -> TlbToken {
        self.tlbs.issue(vmid, scope)
    }

    fn complete(&self, token: TlbToken) {
        self.tlbs.complete(token);
        self.complete_again();
    }

    fn vacate(&self, cpu: u32, vmid: Vmid) {
        self.tlbs.vacate(cpu, vmid);
    }

    fn invalidate_all_vmids(&self) {
        self.tlbs.invalidate_all_vmids();
        self.complete_again();
    }
}
