//! Maintenance of the caches between CPUs and memory.
//!
//! If every access of a guest goes through the caches, as on x86, none of this is needed. On Arm it is needed, unless
//! stage 2 forces write-back (`HCR_EL2.FWB`): a guest that has its stage-1 MMU or its caches off reads and writes
//! memory past them.

use crate::address::Pfn;

/// What processors take off the core's hands. Whether stage 2 has all accesses of a guest go through the caches is not
/// among it, since that is the format's to say, whose entries differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CacheCapabilities {
    /// What instruction caches see by themselves, and how they find lines.
    pub instructions: InstructionCaches,
    /// Single registers can be trapped (`FEAT_FGT`): the one that turns caches on and off, and none of the others that
    /// `HCR_EL2.TVM` traps with it.
    pub fgt: bool,
}

/// How the instruction caches of a machine's CPUs find lines, where they do not see what is written: of the least helpful
/// CPU, where they differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum InstructionCaches {
    /// They see what is written, when it is out of the data cache (Arm: `CTR_EL0.DIC`), or before (x86). Nothing is ever
    /// dropped.
    Coherent,
    /// By physical address (Arm: PIPT, `CTR_EL0.L1Ip` is `0b11`): an access that names a line, by whatever address,
    /// reaches it.
    Physical,
    /// By the address that it was fetched by (Arm: VIPT, `CTR_EL0.L1Ip` is `0b10`, and whatever else it may be). A line
    /// that a guest has fetched may be where no address of the hypervisor's reaches it, so they are dropped as a whole.
    #[default]
    Virtual,
}

/// The caches of all CPUs, down to memory (Arm: the point of coherency).
///
/// Each call is complete when it returns, its barrier included: on Arm, lines by `DC CVAC` or `DC CIVAC` and then `DSB
/// SY`; `IC IVAU` at each line, or `IC IALLUIS`, and then `DSB ISH`. Frames are named, and need not be anybody's any more: what is cleaned then is
/// what their present owner has written.
///
/// # Safety
///
/// When a call has returned, what it says is so, of the frames of every machine whose VMs are created with this cache, and
/// [`capabilities`](Cache::capabilities) claims nothing that its CPUs do not have. What a cache leaves undone has a guest
/// that goes past it read what was in its frame before: another guest's memory, or the hypervisor's.
///
/// ```compile_fail,E0200
/// use mayfly_platform::address::Pfn;
/// use mayfly_platform::cache::{Cache, CacheCapabilities};
///
/// struct Idle;
///
/// impl Cache for Idle {
///     fn capabilities(&self) -> CacheCapabilities {
///         CacheCapabilities::default()
///     }
///
///     fn clean(&self, _: Pfn, _: u64) {}
///
///     fn clean_invalidate(&self, _: Pfn, _: u64) {}
///
///     fn invalidate_instructions(&self, _: Pfn, _: u64) {}
///
///     fn invalidate_all_instructions(&self) {}
/// }
/// ```
pub unsafe trait Cache: Send + Sync {
    /// What need not be done here. Never changes; a VM asks when it is built.
    fn capabilities(&self) -> CacheCapabilities;

    /// Writes back to memory what the caches hold of `count` frames from `first` on and memory does not, for a guest
    /// that reads memory past the caches.
    fn clean(&self, first: Pfn, count: u64);

    /// As [`Cache::clean`], and then drops the lines: for a party that reads through the caches what was written to
    /// memory past them.
    fn clean_invalidate(&self, first: Pfn, count: u64);

    /// Drops what the instruction caches of all CPUs hold of `count` frames from `first` on, whose data have been cleaned
    /// where they have to be. Called only where they are [`InstructionCaches::Physical`]; of many frames it may drop
    /// everything, where that is quicker. (Arm: `IC IVAU` at each line, by any address that leads to the frame.)
    fn invalidate_instructions(&self, first: Pfn, count: u64);

    /// Drops all that the instruction caches of all CPUs hold, guests' lines among it. Called only where they are
    /// [`InstructionCaches::Virtual`]. (Arm: `IC IALLUIS`, which at EL2 reaches the lines of every VMID.)
    fn invalidate_all_instructions(&self);
}
