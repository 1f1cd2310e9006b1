//! Maintenance of the caches between CPUs and memory.
//!
//! Where every access of a guest goes through the caches, as on x86, none of this is needed. It is on Arm, without
//! `FEAT_S2FWB`: a guest that has its stage-1 MMU or its caches off reads and writes memory past them.

use crate::address::Pfn;

/// What processors take off the core's hands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CacheCapabilities {
    /// Stage 2 makes every access of a guest to memory a cacheable one, whatever stage 1 says (`FEAT_S2FWB`): so memory
    /// and caches never differ for it. Implies that data need not be cleaned for instructions to be fetched
    /// (`FEAT_IDC`; Linux relies on it too, `clean_dcache_guest_page` in `arch/arm64/kvm/mmu.c`).
    pub fwb: bool,
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
