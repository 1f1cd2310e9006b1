//! What the core does that hardware sees, reported as it happens.
//!
//! Some of what hardware sees passes through the platform anyway: frames, invalidations, maintenance of caches,
//! entering a guest and leaving it. The rest is reported here, for an observer that checks it against the manuals'
//! rules, or that delays what hardware sees. A platform that observes nothing pays a branch that is always predicted at
//! each step, and nothing anywhere else.

use crate::address::Pfn;
use crate::tlb::Vmid;

/// The observer.
///
/// Called by the thread that makes the step, with locks held, and with entries frozen: neither waits for the core, nor
/// calls it.
pub trait Observer: Send + Sync {
    /// A step may be about to be made. What this returns comes back with it; if none is made after all (another thread
    /// was first), it does not.
    fn begin(&self) -> Ticket;

    /// `step` was made, in one atomic operation since `begun` was given, on this thread.
    fn end(&self, begun: Ticket, step: Step);
}

/// The moment before a step, as [`Observer::begin`] numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// A step that hardware sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// An entry of a table was written.
    Entry {
        /// The frame of the table; of several side by side, the one that the entry is in.
        table: Pfn,
        /// The number of the entry in that frame.
        index: usize,
        /// Its bits before.
        old: u64,
        /// Its bits from now on.
        new: u64,
    },
    /// All entries of a table were written, which no other entry leads to yet.
    Filled {
        /// Its frame.
        table: Pfn,
    },
    /// There is a root, which a CPU may come to run on.
    Root {
        /// Its first frame.
        top: Pfn,
        /// It has `1 << order` frames.
        order: u32,
        /// The name of its format.
        format: &'static str,
        /// How many levels of tables a walk goes through, at most.
        levels: u32,
    },
    /// No CPU runs on the root any more, or ever will.
    RootGone {
        /// Its first frame.
        top: Pfn,
    },
    /// A VMID came to belong to a root.
    VmidTaken {
        /// The number.
        vmid: Vmid,
        /// In which generation of VMIDs.
        generation: u64,
    },
    /// A VMID belongs to no root from now on.
    VmidGiven {
        /// The number.
        vmid: Vmid,
    },
    /// A VMID goes on belonging to its root in the next generation.
    VmidKept {
        /// The number.
        vmid: Vmid,
        /// The generation that is next.
        generation: u64,
    },
    /// A generation of VMIDs has begun: of those of the last one, the kept ones alone belong to roots.
    Generation {
        /// Its number.
        generation: u64,
    },
    /// A full barrier between a change of entries and the look at the CPUs that may have walked them: on Arm a
    /// `DMB ISH`, which no walk heeds.
    Barrier,
}

/// Makes a step by `act`, and tells `observer` what it says was made, if anything was.
#[cold]
#[inline(never)]
pub fn tell<T>(observer: &dyn Observer, act: impl FnOnce() -> (T, Option<Step>)) -> T {
    let begun = observer.begin();
    let (outcome, step) = act();
    if let Some(step) = step {
        observer.end(begun, step);
    }
    outcome
}
