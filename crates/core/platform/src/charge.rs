//! Work worth accounting.

/// A piece of work that the core reports through [`Platform::charge`](crate::Platform::charge) when it does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Op {
    /// A grace period began to sample readers.
    GracePeriod,
    /// Every CPU that runs a reader was made to pass a full barrier.
    HeavyBarrier,
    /// A thread is about to sleep until something changes.
    Sleep,
    /// So many deferred callbacks were run.
    Callbacks(u64),
    /// A TLB invalidation was issued.
    TlbInvalidation,
    /// So many entries of tables were written, by a call that works on a range of them, or by a fault.
    EntriesWritten(u64),
    /// So many tables were taken out of a tree, to be freed.
    TablesFreed(u64),
    /// So many tables were left in a tree, though all that they map was taken away, since it is about to come back.
    TablesKept(u64),
    /// A fault was refused, as the host has changed something since it was asked, or is changing it: it looks again.
    FaultRefused,
    /// A thread found an entry of a table frozen, and waits for it.
    FrozenWait,
    /// A slice of work on a range of tables begins, on this thread.
    SliceBegin,
    /// The slice that began last on this thread is over.
    SliceEnd,
    /// This thread's vCPU has found that it is to load its root anew.
    RootLoadBegin,
    /// The vCPU is about to run on the root that it has loaded, or will not run any more. A platform that sees a wait
    /// in between has been made to keep a vCPU from its root, which Mayfly never does.
    RootLoadEnd,
    /// A fault was taken only so that a first write past the caches is known.
    TrackingFault,
    /// So many frames were cleaned before something was mapped to them.
    CleanedToMap(u64),
    /// Instruction caches have forgotten so many frames before something executable was mapped to them.
    InstructionsForgotten(u64),
    /// Instruction caches have forgotten everything before something executable was mapped.
    AllInstructionsForgotten,
    /// So many frames that were written past the caches were cleaned and invalidated.
    Flushed(u64),
}
