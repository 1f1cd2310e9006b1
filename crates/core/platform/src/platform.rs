//! What the core asks of its surroundings: [`Platform`], and the words that its methods speak.

use core::num::NonZeroU64;

use crate::charge::Op;
use crate::frames::Frames;
use crate::observe::Observer;
use crate::sync::{AtomicU32, spin_loop};
use crate::time::Instant;
use crate::tlb::Tlb;

/// How readers that announce themselves with plain stores are ordered against a writer that looks for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReaderBarrier {
    /// Every reader executes a full fence; the writer's own fence pairs with it.
    Fenced,
    /// Readers execute only a compiler barrier; [`Platform::heavy_barrier`] makes up for it on every CPU that runs one.
    Asymmetric,
}

/// Which world a platform stands for. Platforms of one identity can take each other's place: one wakes a thread that
/// waits with the other, both read the same clock, and either's heavy barrier reaches the same readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity(u64);

impl Identity {
    /// The identity of that number, which means what the program's platforms agree on.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }
}

/// What runs on a CPU now and goes on until it is done: a thread, or the one flow of control of a CPU that has no
/// threads. No two that exist at a time are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context(NonZeroU64);

impl Context {
    /// The context of that number.
    pub const fn new(number: NonZeroU64) -> Self {
        Self(number)
    }

    /// Its number.
    pub const fn get(self) -> NonZeroU64 {
        self.0
    }
}

/// The world, as the core sees it. One value serves every VM of a process or a hypervisor.
///
/// A method that panics ends the program wherever the core has called it while others' memory depends on it: see
/// [`no_unwind`](crate::no_unwind).
///
/// # Safety
///
/// What the core frees, and when, rests on these methods:
///
/// - [`reader_barrier`](Platform::reader_barrier) answers [`ReaderBarrier::Asymmetric`] only where
///   [`heavy_barrier`](Platform::heavy_barrier) does what it says. One that returns early frees memory under a reader.
/// - [`identity`](Platform::identity) is the same for two platforms only if they can take each other's place.
/// - [`context`](Platform::context) names nothing, or the same for as long as a context runs, and no other by it.
///
/// The others may be as slow, and as early, as their documentation allows; a mistake in them costs progress, and no
/// memory.
pub unsafe trait Platform: Send + Sync {
    /// Which world this is.
    fn identity(&self) -> Identity;

    /// Blocks while `*word == expected`, and may return earlier for no reason: callers check again.
    ///
    /// The comparison and the decision to block are one step with respect to [`Platform::wake`]: a waker that changes
    /// the word and then wakes is never missed.
    fn wait(&self, word: &AtomicU32, expected: u32);

    /// As [`Platform::wait`], and returns at `deadline` at the latest.
    fn wait_until(&self, word: &AtomicU32, expected: u32, deadline: Instant);

    /// Wakes every thread that waits on `word`.
    ///
    /// Interrupt handlers call this, to ask something of a vCPU: it neither waits, nor allocates or frees, nor takes a
    /// lock that what was interrupted may hold (or interrupts are masked wherever that lock is held).
    fn wake(&self, word: &AtomicU32);

    /// How many CPUs there are that guests run on, at least 1. Never changes. They are numbered from 0 on: as a vCPU says
    /// where it goes into its guest ([`Platform::interrupt`]), and as [`Tlb::vacate`] is told.
    ///
    /// The default is one: for worlds where one CPU, or one thread, runs all vCPUs.
    fn cpus(&self) -> u32 {
        1
    }

    /// Interrupts CPU `cpu`, by the number that a vCPU gave when it last went into its guest there. If the CPU is in a
    /// guest when the interrupt arrives, it comes out of it; and it sees then what was written before this was called.
    ///
    /// Does not wait until it has arrived, or come out; may be called from interrupt handlers, as [`Platform::wake`],
    /// and for a CPU that is in no guest any more, or for the caller's own. The default does nothing: for worlds whose
    /// guests look at what is asked of them by themselves.
    fn interrupt(&self, cpu: u32) {
        let _ = cpu;
    }

    /// The time since an arbitrary, fixed moment; never goes backwards.
    fn now(&self) -> Instant;

    /// Which barrier readers need here. The answer never changes; domains ask once, when they are built.
    fn reader_barrier(&self) -> ReaderBarrier;

    /// Makes every CPU that is executing a reader pass a full memory barrier before this returns; a full barrier for
    /// the caller too. Called only where [`Platform::reader_barrier`] is [`ReaderBarrier::Asymmetric`].
    ///
    /// A CPU may be left out only if it has said that it executes no reader (it is idle, or in its guest), and passes a
    /// full memory barrier *after* it has said that it is out of there and *before* its next section. Returning from an
    /// exception, taking one, and leaving a guest are no such barriers, on any architecture.
    ///
    /// If the barrier cannot be carried out, this must not return.
    fn heavy_barrier(&self);

    /// What runs here now, where that is known. The core asks so that no callback runs inside another, and in debug
    /// builds to find a thread that waits for itself. Without an answer, which is the default, it finds no such thread,
    /// and leaves callbacks that `expedite` and `tick` would run to any other thread that runs some.
    fn context(&self) -> Option<Context> {
        None
    }

    /// Lets others have this CPU for a moment, if any want it. A vCPU calls this between two stays in the guest, where
    /// it holds nothing. The default goes on at once.
    fn relax(&self) {}

    /// A moment of a wait for another CPU that waits for none itself: the caller looks again and again. It keeps its CPU
    /// meanwhile: no other vCPU runs there, and the caller goes on there. The default tells the processor that it waits.
    fn spin(&self) {
        spin_loop();
    }

    /// A point of long work at which the caller may be interrupted, and others may have this CPU for as long as they
    /// like: the core calls this after each slice of work on a range of tables (`mayfly_stage2::Slice` says how long
    /// one is), and between pieces of 256 KiB of frames whose caches are maintained. For worlds that run the core with
    /// interrupts masked, or without preemption. The default goes on at once.
    ///
    /// None is reached with a lock held that a vCPU takes on its way, or a thread that creates, kicks or drops a vCPU.
    /// The caller may be in a section, in an invalidation that it has announced, or have its turn to change memslots or
    /// roots; a thread that waits for one of those waits for the caller. So what runs here, and may wait, has to be
    /// able to be left for the caller; what runs on top of it, an interrupt's handler say, must not wait for those.
    fn preemption_point(&self) {}

    /// Accounts for `op`. The default keeps no books.
    fn charge(&self, op: Op) {
        let _ = op;
    }

    /// The observer of what the core does that hardware sees, if there is one: the default has none. The answer never
    /// changes; the core asks when a VM is created, and where it is about to do what takes long anyway.
    fn observer(&self) -> Option<&dyn Observer> {
        None
    }
}

/// A world whose CPUs translate guest addresses: what stage 2 needs beside [`Platform`].
pub trait Mmu: Platform + Frames + Tlb {}

impl<P: Platform + Frames + Tlb> Mmu for P {}
