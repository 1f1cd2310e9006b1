//! Maintenance of the caches between CPUs and memory.
//!
//! Where every access of a guest goes through the caches, as on x86, none of this is needed. It is on Arm, unless stage 2
//! forces write-back (`HCR_EL2.FWB`): a guest that has its stage-1 MMU or its caches off reads and writes memory past
//! them.

use crate::address::Pfn;

/// What processors take off the core's hands. Whether stage 2 has all accesses of a guest go through the caches is not
/// among it, since that is the format's to say, whose entries differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CacheCapabilities {
    /// Instruction caches see what is written, when it is out of the data cache (`FEAT_DIC`).
    pub dic: bool,
    /// Single registers can be trapped (`FEAT_FGT`): the one that turns caches on and off, and none of the others that
    /// `HCR_EL2.TVM` traps with it.
    pub fgt: bool,
}

/// The caches of all CPUs, down to memory (Arm: the point of coherency).
///
/// Each call is complete when it returns, its barrier included: on Arm, lines by `DC CVAC` or `DC CIVAC` and then `DSB
/// SY`; `IC IVAU` and then `DSB ISH`. Frames are named, and need not be anybody's any more: what is cleaned then is
/// what their present owner has written.
///
/// Safe to implement: what a cache leaves undone has a guest read what was in its frame before, or have what it wrote
/// there lost. Nothing of the core is in those frames, so no memory of the hypervisor is touched. What was in them
/// before may have been another guest's, though, so a cache that does nothing where it should keeps no secrets.
pub trait Cache: Send + Sync {
    /// What need not be done here. Never changes; a VM asks when it is built.
    fn capabilities(&self) -> CacheCapabilities;

    /// Writes back to memory what the caches hold of `count` frames from `first` on and memory does not, for whoever
    /// reads memory past the caches.
    fn clean(&self, first: Pfn, count: u64);

    /// As [`Cache::clean`], and then drops the lines: for whoever reads through the caches what was written to memory
    /// past them.
    fn clean_invalidate(&self, first: Pfn, count: u64);

    /// Drops what instruction caches hold of `count` frames from `first` on, whose data have been cleaned where they
    /// have to be.
    fn invalidate_instructions(&self, first: Pfn, count: u64);
}
